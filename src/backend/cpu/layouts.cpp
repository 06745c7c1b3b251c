// See layouts.hpp. The cheapest layouts of a chain are a shortest path: the nodes are the layouts of each tensor, and
// an edge costs what the operation between two tensors costs in these layouts. A graph with branches takes layouts by
// groups of tensors instead.
#include "backend/cpu/layouts.hpp"

#include "backend/cpu/convolution_descriptors.hpp"
#include "backend/cpu/convolution_table.hpp"
#include "backend/cpu/depthwise.hpp"
#include "backend/cpu/few_channels.hpp"
#include "backend/cpu/layout_groups.hpp"
#include "graph/work.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr double impossible = std::numeric_limits<double>::infinity();
/// Reference code, in nanoseconds per multiply-add: chosen only if there is nothing else.
constexpr double reference_cost = 30;
constexpr std::array layouts{Layout::nChw16c, Layout::nChw8c, Layout::nhwc, Layout::nchw};

enum class Pass { forward, data, weights };

ConvolutionAlgorithm& algorithm_of(ConvolutionChoice& choice, Pass pass) {
  if (pass == Pass::forward) return choice.forward;
  return pass == Pass::data ? choice.data : choice.weights;
}

/// The pass of an ordinary convolution that computes a pass of this one.
Pass computed_by(const Operation& operation, Pass pass) {
  if (!operation.is_transposed || pass == Pass::weights) return pass;
  return pass == Pass::forward ? Pass::data : Pass::forward;
}

double rate_of(const ConvolutionRow& row, const Operation& operation, Pass pass) {
  const Pass computing = computed_by(operation, pass);
  if (computing == Pass::forward) return row.forward;
  return computing == Pass::data ? row.data : row.weights;
}

/// A row's layouts as those of the operation's input and output.
std::pair<Layout, Layout> layouts_of(const ConvolutionRow& row, const Operation& operation) {
  return operation.is_transposed ? std::pair(row.output, row.input) : std::pair(row.input, row.output);
}

/// oneDNN's reference code and, for depthwise convolutions, its kernels for groups: a product for every channel.
bool is_slow(const std::string& implementation, ConvolutionKind kind) {
  const bool is_for_groups = kind == ConvolutionKind::depthwise && implementation.find("dw") == std::string::npos;
  return implementation.starts_with("ref") || is_for_groups;
}

/// Winograd takes 3 x 3 kernels and multiples of 16 channels. With more padding than 1, the weight gradient of oneDNN
/// 2.6 never ended.
bool winograd_fits(const TensorSpec& input, const TensorSpec& output, const Operation& operation) {
  const auto is_dense_3 = [](const Window& axis) { return axis.kernel == 3 && axis.stride == 1 && axis.dilation == 1; };
  const bool fits =
      !operation.is_transposed && is_dense_3(operation.windows.rows) && is_dense_3(operation.windows.columns);
  const bool sixteens = input.channels % 16 == 0 && output.channels % 16 == 0;
  const onednn::Geometry geometry = convolution_geometry(operation.windows);
  const auto is_small = [](const dnnl::memory::dims& padding) {
    return std::ranges::all_of(padding, [](std::int64_t size) { return size <= 1; });
  };
  return onednn::has_winograd() && fits && sixteens && output.width >= 8 && is_small(geometry.pad_before) &&
         is_small(geometry.pad_after);
}

double winograd_bytes(const TensorSpec& input, const TensorSpec& output, std::size_t num_examples) {
  constexpr double tile = 4;    // outputs along an axis
  constexpr double cells = 36;  // of a transformed tile
  const double tiles =
      std::ceil(static_cast<double>(output.height) / tile) * std::ceil(static_cast<double>(output.width) / tile);
  return static_cast<double>(num_examples) * tiles * cells * sizeof(float) *
         static_cast<double>(input.channels + output.channels);
}

/// The row of each algorithm and pair of layouts that holds for this instruction set.
std::vector<ConvolutionRow> rows_for(InstructionSet set, ElementType type, ConvolutionKind kind) {
  std::vector<ConvolutionRow> rows;
  for (const ConvolutionRow& row : convolution_table()) {
    if (row.from > set || row.type != type || row.kind != kind) continue;
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
                   std::size_t num_examples, InstructionSet set)
      : problem_{context, graph, operation, num_examples, {}},
        input_(graph.tensors[operation.input]),
        output_(graph.tensors[operation.output]),
        work_(static_cast<double>(num_examples) * multiply_adds_per_example(graph, operation)),
        has_data_gradient_(needs_data_gradient(graph, operation)),
        rows_(rows_for(set, input_.type, kind_of(graph, operation))) {
    for (const ConvolutionRow& row : rows_) add_kernels(layouts_of(row, operation));
    if (std::ranges::all_of(kernels_, &Kernels::is_own)) add_reference();
  }

  /// `forced`: kernels of this layout if there are any that fit.
  [[nodiscard]] std::pair<double, ConvolutionChoice> best(Layout input, Layout output,
                                                          std::optional<Layout> forced) const {
    std::pair<double, ConvolutionChoice> found{impossible, {}};
    bool is_forced = false;
    for (const Kernels& kernels : kernels_) {
      const bool converts_input = !is_same_memory(input_, input, kernels.choice.input);
      const bool converts_output = !is_same_memory(output_, output, kernels.choice.output);
      if (kernels.is_own && (converts_input || converts_output)) continue;
      double cost = kernels.cost;
      // Forward and the weight gradient read the input; the data gradient writes its gradient.
      if (converts_input) cost += (has_data_gradient_ ? 3 : 2) * conversion_cost(input_);
      if (converts_output) cost += 2 * conversion_cost(output_);
      const bool has_forced = forced && kernels.choice.output == *forced;
      const bool is_better = has_forced == is_forced ? cost < found.first : has_forced;
      if (is_better) found = {cost, kernels.choice};
      is_forced = is_forced || has_forced;
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
  void add_kernels(const std::pair<Layout, Layout>& kernel_layouts) {
    const auto [input, output] = kernel_layouts;
    if (!fits(input, input_.channels) || !fits(output, output_.channels)) return;
    const bool is_known = std::ranges::any_of(kernels_, [&](const Kernels& kernels) {
      return std::pair(kernels.choice.input, kernels.choice.output) == kernel_layouts;
    });
    if (is_known) return;
    Kernels kernels{.choice = {.input = input, .output = output}, .is_own = false};
    for (const Pass pass : {Pass::forward, Pass::data, Pass::weights}) {
      if (pass == Pass::data && !has_data_gradient_) continue;
      double rate = 0;
      for (const ConvolutionRow& row : rows_) {
        const double its_rate = rate_of(row, problem_.operation, pass);
        if (layouts_of(row, problem_.operation) != kernel_layouts || its_rate <= rate || !is_supported(row, pass))
          continue;
        rate = its_rate;
        algorithm_of(kernels.choice, pass) = row.algorithm;
      }
      if (rate == 0) return;
      kernels.cost += work_ / rate;
    }
    kernels.is_own = is_own(kernels.choice.forward) || is_own(kernels.choice.weights);
    const bool has_winograd = kernels.choice.forward == ConvolutionAlgorithm::onednn_winograd ||
                              kernels.choice.weights == ConvolutionAlgorithm::onednn_winograd;
    kernels.choice.wants_whole_batch =
        has_winograd && winograd_bytes(input_, output_, problem_.num_examples) <= max_winograd_bytes;
    kernels_.push_back(kernels);
  }

  void add_reference() {
    constexpr auto direct = ConvolutionAlgorithm::direct_nhwc;
    kernels_.push_back({work_ * reference_cost, {.forward = direct, .data = direct, .weights = direct}, false});
  }

  [[nodiscard]] bool is_supported(const ConvolutionRow& row, Pass pass) const {
    const Operation& operation = problem_.operation;
    if (row.algorithm == ConvolutionAlgorithm::direct_few_channels)
      return operation.input == 0 && operation.shared.count == 1 && !operation.is_transposed &&
             supports_few_channels(input_, output_);
    if (row.algorithm == ConvolutionAlgorithm::direct_depthwise)
      return operation.shared.count == 1 && supports_depthwise_weights(input_, output_);
    if (row.algorithm == ConvolutionAlgorithm::onednn_winograd && !winograd_fits(input_, output_, operation))
      return false;
    ConvolutionProblem problem = problem_;
    std::tie(problem.choice.input, problem.choice.output) = layouts_of(row, operation);
    algorithm_of(problem.choice, pass) = row.algorithm;
    try {
      const Pass computing = computed_by(operation, pass);
      if (computing == Pass::forward) return !is_slow(describe_forward(problem).impl_info_str(), row.kind);
      if (computing == Pass::data) return !is_slow(describe_backward_data(problem).impl_info_str(), row.kind);
      return !is_slow(describe_backward_weights(problem).impl_info_str(), row.kind);
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
  LayoutSearch(const onednn::Context& context, Graph& graph, std::size_t num_examples, InstructionSet set,
               std::optional<Layout> forced)
      : context_(context), graph_(graph), num_examples_(num_examples), set_(set), forced_(forced) {}

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
      costs.emplace_back(context_, graph_, operation, num_examples_, set_);
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
    const ConvolutionCosts costs(context_, graph_, operation, num_examples_, set_);
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
  InstructionSet set_;
  std::optional<Layout> forced_;
  std::vector<Stage> stages_;
};

}  // namespace

void choose_layouts(const onednn::Context& context, Graph& graph, std::size_t num_examples, InstructionSet set,
                    std::optional<Layout> forced) {
  LayoutSearch(context, graph, num_examples, set, forced).run();
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
    for (const ConvolutionRow& row : rows_for(set, input.type, kind_of(graph, operation))) {
      if (layouts_of(row, operation) != std::pair(choice.input, choice.output)) continue;
      if (row.algorithm == choice.forward) nanoseconds += work / rate_of(row, operation, Pass::forward);
      if (has_data_gradient && row.algorithm == choice.data) nanoseconds += work / rate_of(row, operation, Pass::data);
      if (row.algorithm == choice.weights) nanoseconds += work / rate_of(row, operation, Pass::weights);
    }
  }
  return nanoseconds;
}

}  // namespace lockstep
