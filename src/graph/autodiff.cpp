// See autodiff.hpp. Backward is forward in reverse order, with each operation replaced by its gradient. The gradients
// of a tensor's uses are added when all of them are known, before the operation that computes the tensor.
#include "graph/autodiff.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

namespace {

/// For each tensor that is no alias, whether the loss depends on it.
std::vector<bool> find_causes_of_loss(const Graph& graph) {
  std::vector<bool> causes(graph.tensors.size(), false);
  const auto root_of = [&](int tensor) {
    return graph.tensors[tensor].alias >= 0 ? graph.tensors[tensor].alias : tensor;
  };
  // NOLINTNEXTLINE(modernize-loop-convert): clang 14 cannot compile std::views::reverse of libstdc++
  for (auto operation = graph.forward.rbegin(); operation != graph.forward.rend(); ++operation) {
    const bool is_loss = operation->kind == OperationKind::loss;
    if (!is_loss && !causes[root_of(operation->output)]) continue;
    if (!is_loss && operation->input >= 0) causes[root_of(operation->input)] = true;
    for (const Operand& operand : operation->operands) causes[root_of(operand.tensor)] = true;
  }
  return causes;
}

/// For each tensor, whether backward needs its gradient: whether the loss depends on it, and it on parameters that
/// are trained.
std::vector<bool> find_needed_gradients(const Graph& graph) {
  const std::vector<bool> causes = find_causes_of_loss(graph);
  std::vector<bool> needed(graph.tensors.size(), false);
  const auto is_needed = [&](int tensor) {
    if (tensor < 0) return false;
    const int root = graph.tensors[tensor].alias;
    return static_cast<bool>(needed[root >= 0 ? root : tensor]);
  };
  for (const Operation& operation : graph.forward) {
    if (operation.output < 0) continue;
    needed[operation.output] =
        traits_of(operation).backward && causes[operation.output] &&
        ((operation.parameter >= 0 && !operation.is_frozen) || is_needed(operation.input) ||
         std::ranges::any_of(operation.operands, [&](const Operand& operand) { return is_needed(operand.tensor); }));
  }
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) needed[t] = is_needed(static_cast<int>(t));
  return needed;
}

/// What a layer reads that passes no gradient on must not depend on weights that are trained.
void check_passed_gradients(const Graph& graph, const std::vector<bool>& needed) {
  for (const Operation& operation : graph.forward) {
    if (operation.input < 0 || operation.output < 0 || traits_of(operation).backward || !needed[operation.input])
      continue;
    const LayerInfo& layer = graph.layers[operation.layer];
    throw UsageError("layer '" + layer.name + "' (" + layer.class_name +
                     ") reads what layers with weights compute, but Lockstep computes no gradient through it; put it "
                     "before the layers that are trained");
  }
}

Operation backward_of(const Graph& graph, const Operation& forward, const std::vector<bool>& needed) {
  const std::optional<OperationKind> kind = traits_of(forward).backward;
  if (!kind) throw InternalError("operation " + std::string(to_string(forward.kind)) + " has no gradient");
  Operation backward = forward;
  backward.kind = *kind;
  backward.shared.index = forward.shared.count - 1 - forward.shared.index;
  backward.input_gradient = needed[forward.input];
  for (Operand& operand : backward.operands) operand.needs_gradient = needed[operand.tensor];
  if (forward.kind == OperationKind::dense)
    backward.input_features = {0, static_cast<std::size_t>(graph.parameters[forward.parameter].info.shape[0])};
  return backward;
}

Operation sum_of_gradients(const Fork& fork) {
  Operation sum{.kind = OperationKind::sum_gradients,
                .layer = fork.layer,
                .input = fork.tensor,
                .input_activation = fork.activation,
                .input_gradient = true};
  for (const int use : fork.uses) sum.operands.push_back({.tensor = use});
  return sum;
}

}  // namespace

void add_backward(Graph& graph, const std::vector<Fork>& forks) {
  const std::vector<bool> needed = find_needed_gradients(graph);
  check_passed_gradients(graph, needed);
  for (std::size_t i = graph.forward.size(); i-- > 0;) {
    for (std::size_t f = forks.size(); f-- > 0;) {  // a fork of another fork's use comes first
      if (forks[f].position == i + 1 && needed[forks[f].tensor]) graph.backward.push_back(sum_of_gradients(forks[f]));
    }
    Operation& operation = graph.forward[i];
    if (operation.kind == OperationKind::loss) {
      for (Operand& operand : operation.operands) operand.needs_gradient = needed[operand.tensor];
    } else if (operation.kind != OperationKind::gather && needed[operation.output]) {
      graph.backward.push_back(backward_of(graph, operation, needed));
    }
  }
}

}  // namespace lockstep
