// See layouts.hpp. The cheapest layouts of a chain are a shortest path: the nodes are the layouts of each tensor, and
// an edge costs what the operation between two tensors costs in these layouts. A graph with branches takes layouts by
// groups of tensors instead.
#include "backend/cpu/layouts.hpp"

#include "backend/cpu/layout_groups.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr std::array layouts{Layout::nChw16c, Layout::nChw8c, Layout::nhwc, Layout::nchw};

/// A tensor's cheapest way to each layout.
struct Node {
  double cost = impossible_cost;
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
        [&](std::size_t edge, Layout from, Layout to) { return costs[edge].best(from, to).first; });
    for (std::size_t t = 0; t < groups.size(); ++t) graph_.tensors[t].layout = chosen[groups[t]];
    for (std::size_t i = 0; i < edges.size(); ++i) {
      set_choice(*convolutions[i], costs[i].best(chosen[edges[i].from], chosen[edges[i].to]).second);
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
        const bool is_input = graph_.is_input(static_cast<int>(t));
        suits = suits && is_allowed(static_cast<int>(t), layout) && (!is_input || layout == Layout::nhwc);
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
        const auto [cost, choice] = costs.best(before, layout);
        if (node.cost + cost < best.cost) best = {node.cost + cost, before, choice};
      }
      best.cost += penalty(operation.output, layout);
      if (best.cost < impossible_cost) stage.nodes[layout] = best;
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
    return forced_ && layout != *forced_ && !graph_.is_input(tensor) && is_allowed(tensor, *forced_) ? large : 0;
  }

  /// The layouts that an operation may choose for the tensor it writes, the preferred ones first.
  [[nodiscard]] std::vector<Layout> allowed(int t) const {
    const TensorSpec& tensor = graph_.tensors[t];
    const bool is_input = graph_.is_input(t);
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
    double cost = impossible_cost;
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

}  // namespace lockstep
