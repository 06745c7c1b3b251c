// See normalization_derivatives.hpp.
#include "backend/cpu/normalization_derivatives.hpp"

#include "backend/operation_scope.hpp"

#include <vector>

namespace lockstep {

void let_normalizations_derive(Graph& graph) {
  std::vector<bool> derived(graph.tensors.size(), false);
  for (Operation& operation : graph.backward) {
    if (operation.kind != OperationKind::batch_normalization_backward) continue;
    operation.derives_activation =
        operation.activation == ActivationFunction::relu || operation.activation == activations::relu6;
    if (operation.derives_activation) derived[operation.output] = true;
  }
  const auto derive = [&](int tensor, ActivationFunction& activation) {
    if (tensor >= 0 && derived[value_owner(graph, tensor)]) activation = ActivationFunction::linear;
  };
  for (std::vector<Operation>* operations : {&graph.forward, &graph.backward}) {  // a loss computes gradients, too
    for (Operation& operation : *operations) {
      derive(operation.input, operation.input_activation);
      for (Operand& operand : operation.operands) derive(operand.tensor, operand.activation);
    }
  }
}

}  // namespace lockstep
