// See layouts.hpp. The cheapest layouts of a chain are a shortest path: the nodes are the layouts of each tensor, and
// an edge costs what the operation between two tensors costs in these layouts. A graph with branches takes layouts by
// groups of tensors instead.
#include "backend/cpu/layouts.hpp"

#include "backend/cpu/convolution_descriptors.hpp"
#include "backend/cpu/convolution_table.hpp"
#include "backend/cpu/few_channels.hpp"
#include "backend/cpu/layout_groups.hpp"
#include "backend/cpu/winograd/convolution.hpp"
#include "graph/work.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

constexpr double impossible = std::numeric_limits<double>::infinity();
/// Reference code, in nanoseconds per multiply-add: chosen only if there is nothing else.
constexpr double reference_cost = 30;
constexpr std::array layouts{Layout::nChw16c, Layout::nChw8c, Layout::nhwc, Layout::nchw};

using Algorithm = ConvolutionAlgorithm;

enum class Pass { forward, data, weights };

Algorithm& algorithm_of(ConvolutionChoice& choice, Pass pass) {
  if (pass == Pass::forward) return choice.forward;
  return pass == Pass::data ? choice.data : choice.weights;
}

double rate_of(const ConvolutionRow& row, Pass pass) {
  if (pass == Pass::forward) return row.forward;
  return pass == Pass::data ? row.data : row.weights;
}

bool is_reference(const std::string& implementation) { return implementation.starts_with("ref"); }

/// The row of each algorithm and pair of layouts that holds for this instruction set.
std::vector<ConvolutionRow> rows_for(const KernelOptions& options, ElementType type, bool has_few_channels) {
  std::vector<ConvolutionRow> rows;
  for (const ConvolutionRow& row : convolution_table()) {
    if (row.algorithm == Algorithm::winograd && options.convolutions == Convolutions::direct) continue;
    if (row.from > options.set || row.type != type || row.has_few_channels != has_few_channels) continue;
    const auto same = std::ranges::find_if(rows, [&](const ConvolutionRow& other) {
      return other.algorithm == row.algorithm && other.input == row.input && other.output == row.output;
    });
    if (same == rows.end()) {
      rows.push_back(row);
    } else {
      *same = row;
    }
  }
  return rows;
}

/// The algorithms of one convolution and their costs, in nanoseconds of a training step.
class ConvolutionCosts {
 public:
  ConvolutionCosts(const onednn::Context& context, const Graph& graph, const Operation& operation,
                   std::size_t num_examples, const KernelOptions& options)
      : problem_{context, graph, operation, num_examples, {}},
        input_(graph.tensors[operation.input]),
        output_(graph.tensors[operation.output]),
        work_(static_cast<double>(num_examples) * multiply_adds_per_example(graph, operation)),
        has_data_gradient_(needs_data_gradient(graph, operation)),
        rows_(rows_for(options, input_.type, input_.channels <= few_channels)) {
    for (const ConvolutionRow& row : rows_) add_kernels(row.input, row.output);
    if (std::ranges::all_of(kernels_, &Kernels::is_own)) add_reference();
  }

  /// `forced`: kernels of this layout if there are any.
  [[nodiscard]] std::pair<double, ConvolutionChoice> best(Layout input, Layout output,
                                                          std::optional<Layout> forced) const {
    const bool has_forced = forced && std::ranges::any_of(kernels_, [&](const Kernels& kernels) {
                              return kernels.choice.output == *forced;
                            });
    std::pair<double, ConvolutionChoice> found{impossible, {}};
    for (const Kernels& kernels : kernels_) {
      if (has_forced && kernels.choice.output != *forced) continue;
      const bool converts_input = !is_same_memory(input_, input, kernels.choice.input);
      const bool converts_output = !is_same_memory(output_, output, kernels.choice.output);
      if (kernels.is_own && (converts_input || converts_output)) continue;
      double cost = kernels.cost;
      // Forward and the weight gradient read the input; the data gradient writes its gradient.
      if (converts_input) cost += (has_data_gradient_ ? 3 : 2) * conversion_cost(input_);
      if (converts_output) cost += 2 * conversion_cost(output_);
      if (cost < found.first) found = {cost, kernels.choice};
    }
    return found;
  }

 private:
  struct Kernels {
    double cost = 0;
    ConvolutionChoice choice;
    bool is_own = false;  ///< reads and writes the tensors themselves, so their layouts must be those of `choice`
  };

  static bool needs_data_gradient(const Graph& graph, const Operation& forward) {
    return std::ranges::any_of(graph.backward, [&](const Operation& operation) {
      return operation.kind == OperationKind::convolution_backward && operation.output == forward.output &&
             operation.input_gradient;
    });
  }

  static bool is_same_memory(TensorSpec tensor, Layout a, Layout b) {
    if (a == b) return true;
    tensor.layout = a;
    const bool is_a_last = tensor.is_channels_last();
    tensor.layout = b;
    return is_a_last && tensor.is_channels_last();
  }

  [[nodiscard]] double conversion_cost(const TensorSpec& tensor) const {
    return 2 * static_cast<double>(problem_.num_examples) * static_cast<double>(tensor.elements()) *
           static_cast<double>(size_of(tensor.type)) / conversion_rate;
  }

  /// Adds the fastest kernels that read and write these layouts, if there are some for every pass.
  void add_kernels(Layout input, Layout output) {
    if (!fits(input, input_.channels) || !fits(output, output_.channels)) return;
    const bool is_known = std::ranges::any_of(kernels_, [&](const Kernels& kernels) {
      return kernels.choice.input == input && kernels.choice.output == output;
    });
    if (is_known) return;
    Kernels kernels{.choice = {.input = input, .output = output}, .is_own = false};
    for (const Pass pass : {Pass::forward, Pass::data, Pass::weights}) {
      if (pass == Pass::data && !has_data_gradient_) continue;
      double rate = 0;
      for (const ConvolutionRow& row : rows_) {
        const bool is_offered = row.input == input && row.output == output && row.algorithm != Algorithm::winograd;
        if (!is_offered || rate_of(row, pass) <= rate || !is_supported(row, pass)) continue;
        rate = rate_of(row, pass);
        algorithm_of(kernels.choice, pass) = row.algorithm;
      }
      if (rate == 0) return;
      kernels.cost += work_ / rate;
    }
    constexpr auto own = Algorithm::direct_few_channels;
    kernels.is_own = kernels.choice.forward == own || kernels.choice.weights == own;
    use_winograd_if_faster(kernels);
    kernels_.push_back(kernels);
  }

  /// Our own Winograd computes all passes or none.
  void use_winograd_if_faster(Kernels& kernels) const {
    ConvolutionProblem problem = problem_;
    problem.choice = {.forward = Algorithm::winograd,
                      .data = has_data_gradient_ ? Algorithm::winograd : Algorithm::unspecified,
                      .weights = Algorithm::winograd,
                      .input = kernels.choice.input,
                      .output = kernels.choice.output};
    for (const ConvolutionRow& row : rows_) {
      const bool is_its = row.algorithm == Algorithm::winograd && row.input == problem.choice.input;
      if (!is_its || !supports_winograd(problem)) continue;
      const double work = winograd_work(problem_.graph, problem_.operation, problem_.num_examples);
      const double cost = work / row.forward + work / row.weights + (has_data_gradient_ ? work / row.data : 0);
      if (cost < kernels.cost) kernels = {.cost = cost, .choice = problem.choice};
    }
  }

  void add_reference() {
    constexpr auto direct = Algorithm::direct_nhwc;
    kernels_.push_back({work_ * reference_cost, {.forward = direct, .data = direct, .weights = direct}, false});
  }

  [[nodiscard]] bool is_supported(const ConvolutionRow& row, Pass pass) const {
    if (row.algorithm == Algorithm::direct_few_channels)
      return problem_.operation.input == 0 && supports_few_channels(input_, output_);
    ConvolutionProblem problem = problem_;
    problem.choice = {.input = row.input, .output = row.output};
    try {
      if (pass == Pass::forward) return !is_reference(describe_forward(problem).impl_info_str());
      if (pass == Pass::data) return !is_reference(describe_backward_data(problem).impl_info_str());
      return !is_reference(describe_backward_weights(problem).impl_info_str());
    } catch (const dnnl::error&) {  // not implemented
      return false;
    }
  }

  ConvolutionProblem problem_;
  const TensorSpec& input_;
  const TensorSpec& output_;
  double work_;
  bool has_data_gradient_;
  std::vector<ConvolutionRow> rows_;
  std::vector<Kernels> kernels_;
};

/// A tensor's cheapest way to each layout.
struct Node {
  double cost = impossible;
  Layout before = Layout::nhwc;  ///< of the tensor before
  ConvolutionChoice choice;      ///< of the convolution between the two
};

struct Stage {
  int tensor = -1;
  int operation = -1;  ///< the convolution that writes it; -1: another operation
  std::map<Layout, Node> nodes = {};
};

class LayoutSearch {
 public:
  LayoutSearch(const onednn::Context& context, Graph& graph, std::size_t num_examples, const KernelOptions& options)
      : context_(context), graph_(graph), num_examples_(num_examples), options_(options), forced_(options.forced) {}

  void run() {
    if (graph_.is_chain) {
      run_chain();
    } else {
      run_groups();
    }
  }

 private:
  void run_chain() {
    for (std::size_t i = 0; i < graph_.forward.size(); ++i) add(static_cast<int>(i));
    Layout layout = cheapest(stages_.back());
    // NOLINTNEXTLINE(modernize-loop-convert): clang 14 cannot compile std::views::reverse of libstdc++
    for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
      const Node& node = stage->nodes.at(layout);
      graph_.tensors[stage->tensor].layout = layout;
      if (stage->operation >= 0) set_choice(graph_.forward[stage->operation], node.choice);
      layout = node.before;
    }
    for (TensorSpec& tensor : graph_.tensors) {
      if (tensor.alias >= 0) tensor.layout = Layout::nhwc;
    }
  }

  void run_groups() {
    const std::vector<int> groups = group_tensors(graph_);
    std::vector<std::vector<Layout>> allowed_in_groups(*std::ranges::max_element(groups) + 1);
    for (std::size_t group = 0; group < allowed_in_groups.size(); ++group) {
      allowed_in_groups[group] = allowed_in_group(groups, static_cast<int>(group));
    }
    std::vector<GroupEdge> edges;
    std::vector<Operation*> convolutions;
    std::vector<ConvolutionCosts> costs;
    for (Operation& operation : graph_.forward) {
      if (operation.kind != OperationKind::convolution) continue;
      edges.push_back({groups[operation.input], groups[operation.output]});
      convolutions.push_back(&operation);
      costs.emplace_back(context_, graph_, operation, num_examples_, options_);
    }
    const std::vector<Layout> chosen = choose_group_layouts(
        allowed_in_groups, edges,
        [&](std::size_t edge, Layout from, Layout to) { return costs[edge].best(from, to, forced_).first; });
    for (std::size_t t = 0; t < groups.size(); ++t) graph_.tensors[t].layout = chosen[groups[t]];
    for (std::size_t i = 0; i < edges.size(); ++i) {
      set_choice(*convolutions[i], costs[i].best(chosen[edges[i].from], chosen[edges[i].to], forced_).second);
    }
  }

  /// The layouts that all tensors of a group may have, the preferred ones first.
  [[nodiscard]] std::vector<Layout> allowed_in_group(const std::vector<int>& groups, int group) const {
    std::vector<Layout> found;
    bool has_image = false;
    for (const Layout layout : layouts) {
      bool suits = layout != Layout::nchw;
      for (std::size_t t = 0; t < groups.size(); ++t) {
        if (groups[t] != group) continue;
        const TensorSpec& tensor = graph_.tensors[t];
        has_image = has_image || tensor.height * tensor.width > 1;
        suits = suits && is_allowed(static_cast<int>(t), layout) && (t > 0 || layout == Layout::nhwc);
      }
      if (suits) found.push_back(layout);
    }
    if (!has_image) return {Layout::nhwc};
    const bool can_be_forced = forced_ && std::ranges::find(found, *forced_) != found.end();
    return can_be_forced ? std::vector{*forced_} : found;
  }

  void add(int index) {
    const Operation& operation = graph_.forward[index];
    if (operation.output < 0) return;                                           // loss, pack_all_to_all
    if (!stages_.empty() && operation.output == stages_.back().tensor) return;  // finish_partial_sum
    Stage stage{.tensor = operation.output};
    const TensorSpec& output = graph_.tensors[operation.output];
    const bool convolves = operation.kind == OperationKind::convolution && output.elements() > 0 &&
                           graph_.tensors[operation.input].elements() > 0;
    if (convolves) {
      stage.operation = index;
      add_convolution(operation, stage);
    } else if (operation.input < 0 || traits_of(operation).has_kernel) {
      for (const Layout layout : allowed(operation.output)) {
        const Layout before = stages_.empty() ? Layout::nhwc : cheapest(stages_.back());
        const double cost = stages_.empty() ? 0 : stages_.back().nodes.at(before).cost;
        stage.nodes[layout] = {cost + penalty(operation.output, layout), before, {}};
      }
    } else {
      for (const auto& [layout, node] : nodes_of(operation.input)) {
        if (is_allowed(operation.output, layout)) stage.nodes[layout] = {node.cost, layout, {}};
      }
    }
    stages_.push_back(std::move(stage));
  }

  void add_convolution(const Operation& operation, Stage& stage) const {
    const ConvolutionCosts costs(context_, graph_, operation, num_examples_, options_);
    for (const Layout layout : allowed(operation.output)) {
      Node best;
      for (const auto& [before, node] : nodes_of(operation.input)) {
        const auto [cost, choice] = costs.best(before, layout, forced_);
        if (node.cost + cost < best.cost) best = {node.cost + cost, before, choice};
      }
      best.cost += penalty(operation.output, layout);
      if (best.cost < impossible) stage.nodes[layout] = best;
    }
  }

  /// The ways to the tensor that an operation reads. An alias has Keras' order, and so has the tensor behind it.
  [[nodiscard]] std::map<Layout, Node> nodes_of(int tensor) const {
    const Stage& last = stages_.back();
    if (graph_.tensors[tensor].alias < 0) return last.nodes;
    return {{Layout::nhwc, last.nodes.at(Layout::nhwc)}};
  }

  [[nodiscard]] bool is_allowed(int t, Layout layout) const {
    const TensorSpec& tensor = graph_.tensors[t];
    const bool is_image = tensor.height * tensor.width > 1;
    if (layout == Layout::nhwc) return true;
    const bool is_view = tensor.alias >= 0 && !tensor.is_fork;
    if (graph_.plain || is_view || (is_image && tensor.requires_channels_last)) return false;
    return fits(layout, tensor.channels);
  }

  /// What keeps a tensor in the forced layout wherever a way leads on from there.
  [[nodiscard]] double penalty(int tensor, Layout layout) const {
    constexpr double large = 1e15;
    return forced_ && layout != *forced_ && tensor > 0 && is_allowed(tensor, *forced_) ? large : 0;
  }

  /// The layouts that an operation may choose for the tensor it writes, the preferred ones first.
  [[nodiscard]] std::vector<Layout> allowed(int t) const {
    const TensorSpec& tensor = graph_.tensors[t];
    const bool is_input = t == 0;
    const bool is_image = tensor.height * tensor.width > 1 && tensor.elements() > 0;
    if (!is_image || (is_input && tensor.channels == 1)) return {Layout::nhwc};
    std::vector<Layout> found;
    for (const Layout layout : layouts) {
      const bool is_plain = layout == Layout::nhwc || layout == Layout::nchw;
      const bool suits = is_input ? is_plain : layout != Layout::nchw;
      if (suits && is_allowed(t, layout)) found.push_back(layout);
    }
    return found;
  }

  /// Of equally cheap layouts the first in the order of `layouts`.
  static Layout cheapest(const Stage& stage) {
    Layout best = Layout::nhwc;
    double cost = impossible;
    for (const Layout layout : layouts) {
      const auto node = stage.nodes.find(layout);
      if (node == stage.nodes.end() || node->second.cost >= cost) continue;
      best = layout;
      cost = node->second.cost;
    }
    return best;
  }

  void set_choice(Operation& forward, const ConvolutionChoice& choice) {
    forward.convolution = choice;
    for (Operation& operation : graph_.backward) {
      const bool is_its = operation.kind == OperationKind::convolution_backward && operation.output == forward.output;
      if (is_its) operation.convolution = choice;
    }
    for (Operation& operation : graph_.forward) {  // finish_partial_sum
      if (operation.output == forward.output) operation.convolution = choice;
    }
  }

  const onednn::Context& context_;
  Graph& graph_;
  std::size_t num_examples_;
  const KernelOptions& options_;
  std::optional<Layout> forced_;
  std::vector<Stage> stages_;
};

}  // namespace

void choose_layouts(const onednn::Context& context, Graph& graph, std::size_t num_examples,
                    const KernelOptions& options) {
  LayoutSearch(context, graph, num_examples, options).run();
}

double expected_nanoseconds(const Graph& graph, std::size_t num_examples, InstructionSet set) {
  double nanoseconds = 0;
  for (const Operation& operation : graph.forward) {
    if (!traits_of(operation).has_kernel || operation.input < 0) continue;
    const TensorSpec& input = graph.tensors[operation.input];
    const double work = static_cast<double>(num_examples) * multiply_adds_per_example(graph, operation);
    const bool has_data_gradient = operation.input > 0;
    if (operation.kind != OperationKind::convolution) {
      nanoseconds += (has_data_gradient ? 3 : 2) * work / product_rate(set, input.type);
      continue;
    }
    const ConvolutionChoice& choice = operation.convolution;
    const double scaled = choice.forward == Algorithm::winograd ? winograd_work(graph, operation, num_examples) : work;
    for (const ConvolutionRow& row : rows_for({.set = set}, input.type, input.channels <= few_channels)) {
      if (row.input != choice.input || row.output != choice.output) continue;
      if (row.algorithm == choice.forward) nanoseconds += scaled / row.forward;
      if (has_data_gradient && row.algorithm == choice.data) nanoseconds += scaled / row.data;
      if (row.algorithm == choice.weights) nanoseconds += scaled / row.weights;
    }
  }
  return nanoseconds;
}

}  // namespace lockstep
