// See tensor_uses.hpp. Counts what a kernel may read or write, by the traits of its operation.
#include "backend/tensor_uses.hpp"

#include "backend/operation_scope.hpp"

#include <algorithm>

namespace lockstep {

namespace {

void extend(std::optional<UseRange>& uses, std::size_t at) {
  if (!uses) uses = UseRange{at, at};
  uses->last = at;
}

/// The traits of the operation whose gradients a backward operation computes.
const OperationTraits& forward_traits_of(const Operation& backward) {
  const auto* const found =
      std::ranges::find(operation_traits, std::optional(backward.kind), &OperationTraits::backward);
  return found != operation_traits.end() ? *found : traits_of(backward);
}

template <typename Visit>
void for_each_tensor(const Operation& operation, const Visit& visit) {
  if (operation.input >= 0) visit(operation.input);
  if (operation.output >= 0) visit(operation.output);
  for (const Operand& operand : operation.operands) visit(operand.tensor);
}

/// Beyond the derivatives of fused activations.
bool reads_inputs(const Operation& backward) {
  const BackwardReadsInput reads = forward_traits_of(backward).backward_reads_input;
  return reads == BackwardReadsInput::always || (reads == BackwardReadsInput::if_trained && !backward.is_frozen) ||
         (reads == BackwardReadsInput::by_function && !is_linear(backward.merge));
}

template <typename Visit>
void for_each_value_of_backward(const Operation& operation, const Visit& visit) {
  if (backward_reads_input(operation)) visit(operation.input);
  for (const Operand& operand : operation.operands) {
    if (reads_inputs(operation) || operand.activation != ActivationFunction::linear) visit(operand.tensor);
  }
  if (forward_traits_of(operation).backward_reads_output && operation.output >= 0) visit(operation.output);
}

/// Visits the tensors whose values the operation reads or writes.
template <typename Visit>
void for_each_value(const Operation& operation, const Visit& visit) {
  if (is_backward(operation)) {
    for_each_value_of_backward(operation, visit);
  } else {
    for_each_tensor(operation, visit);
  }
}

class UseFinder {
 public:
  UseFinder(const Graph& graph, std::span<const Operation> operations)
      : graph_(graph),
        operations_(operations),
        loss_(static_cast<std::size_t>(std::ranges::find(operations, OperationKind::loss, &Operation::kind) -
                                       operations.begin())),
        uses_(graph.tensors.size()) {}

  std::vector<TensorUses> run() {
    find_recomputed();
    const std::size_t first_gradient = is_part_of_step() ? 0 : loss_;
    for (std::size_t at = 0; at < operations_.size(); ++at) {
      const Operation& operation = operations_[at];
      for_each_value(operation, [&](int tensor) {
        const std::optional<std::size_t>& recomputed_by = uses_of(tensor).recomputed_by;
        extend(uses_of(at > loss_ && recomputed_by ? operations_[*recomputed_by].input : tensor).value, at);
      });
      for_each_tensor(operation, [&](int tensor) {
        extend(uses_of(tensor).saved_for_backward, at);
        if (at >= first_gradient) extend(uses_[gradient_owner(graph_, tensor)].gradient, at);
      });
    }
    for (const GraphOutput& output : graph_.outputs) {
      if (output.tensor >= 0) extend(uses_of(output.tensor).value, operations_.size());
    }
    return std::move(uses_);
  }

 private:
  TensorUses& uses_of(int tensor) { return uses_[value_owner(graph_, tensor)]; }

  [[nodiscard]] bool is_part_of_step() const { return loss_ == operations_.size(); }

  void find_recomputed() {
    if (is_part_of_step()) return;
    for (std::size_t at = 0; at < loss_; ++at) {
      const Operation& operation = operations_[at];
      if (operation.kind == OperationKind::batch_normalization && operation.shared.count == 1)
        uses_of(operation.output).recomputed_by = at;
    }
    for (std::size_t at = loss_; at < operations_.size(); ++at) {
      const Operation& operation = operations_[at];
      const bool may_recompute = is_backward(operation) && forward_traits_of(operation).is_microbatchable;
      for_each_value(operation, [&](int tensor) {
        if (!may_recompute || tensor != operation.input) uses_of(tensor).recomputed_by.reset();
      });
    }
    for (const GraphOutput& output : graph_.outputs) {
      if (output.tensor >= 0) uses_of(output.tensor).recomputed_by.reset();
    }
    for (std::size_t at = 0; at < loss_; ++at) {  // what is recomputed is not there to recompute others from
      const Operation& operation = operations_[at];
      if (operation.kind == OperationKind::batch_normalization && uses_of(operation.input).recomputed_by)
        uses_of(operation.output).recomputed_by.reset();
    }
  }

  const Graph& graph_;
  std::span<const Operation> operations_;
  std::size_t loss_;  ///< the first operation that reads or writes gradients, or the end
  std::vector<TensorUses> uses_;
};

}  // namespace

bool backward_reads_input(const Operation& operation) {
  return operation.input >= 0 && (reads_inputs(operation) || operation.input_activation != ActivationFunction::linear);
}

std::vector<TensorUses> find_tensor_uses(const Graph& graph, std::span<const Operation> operations) {
  return UseFinder(graph, operations).run();
}

}  // namespace lockstep
