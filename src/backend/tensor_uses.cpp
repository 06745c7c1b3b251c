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

class UseFinder {
 public:
  UseFinder(const Graph& graph, std::span<const Operation> operations)
      : graph_(graph),
        operations_(operations),
        first_gradient_(static_cast<std::size_t>(std::ranges::find(operations, OperationKind::loss, &Operation::kind) -
                                                 operations.begin())),
        uses_(graph.tensors.size()) {
    if (first_gradient_ == operations.size()) first_gradient_ = 0;  // a part of a graph
  }

  std::vector<TensorUses> run() {
    for (std::size_t at = 0; at < operations_.size(); ++at) {
      const Operation& operation = operations_[at];
      if (is_backward(operation)) {
        add_backward(operation, at);
      } else {
        for_each_tensor(operation, [&](int tensor) { add_value(tensor, at); });
      }
      for_each_tensor(operation, [&](int tensor) {
        extend(uses_[value_owner(graph_, tensor)].saved_for_backward, at);
        if (at >= first_gradient_) extend(uses_[gradient_owner(graph_, tensor)].gradient, at);
      });
    }
    for (const GraphOutput& output : graph_.outputs) {
      if (output.tensor >= 0) add_value(output.tensor, operations_.size());
    }
    return std::move(uses_);
  }

 private:
  template <typename Visit>
  static void for_each_tensor(const Operation& operation, const Visit& visit) {
    if (operation.input >= 0) visit(operation.input);
    if (operation.output >= 0) visit(operation.output);
    for (const Operand& operand : operation.operands) visit(operand.tensor);
  }

  void add_value(int tensor, std::size_t at) { extend(uses_[value_owner(graph_, tensor)].value, at); }

  /// The derivative of an activation that is fused into a tensor is computed from the tensor.
  void add_backward(const Operation& operation, std::size_t at) {
    const OperationTraits& forward = forward_traits_of(operation);
    const bool reads_input =
        forward.backward_reads_input == BackwardReadsInput::always ||
        (forward.backward_reads_input == BackwardReadsInput::if_trained && !operation.is_frozen) ||
        (forward.backward_reads_input == BackwardReadsInput::by_function && !is_linear(operation.merge));
    if (operation.input >= 0 && (reads_input || operation.input_activation != ActivationFunction::linear))
      add_value(operation.input, at);
    for (const Operand& operand : operation.operands) {
      if (reads_input || operand.activation != ActivationFunction::linear) add_value(operand.tensor, at);
    }
    if (forward.backward_reads_output && operation.output >= 0) add_value(operation.output, at);
  }

  const Graph& graph_;
  std::span<const Operation> operations_;
  std::size_t first_gradient_;  ///< the first operation that reads or writes gradients
  std::vector<TensorUses> uses_;
};

}  // namespace

std::vector<TensorUses> find_tensor_uses(const Graph& graph, std::span<const Operation> operations) {
  return UseFinder(graph, operations).run();
}

}  // namespace lockstep
