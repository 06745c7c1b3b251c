// See activation_derivatives.hpp.
#include "backend/activation_derivatives.hpp"

#include "backend/operation_scope.hpp"

#include <vector>

namespace lockstep {

void let_derive_activations(Graph& graph, const std::function<bool(const Operation&)>& derives) {
  std::vector<bool> derived(graph.tensors.size(), false);
  for (Operation& operation : graph.backward) {
    if (!derives(operation)) continue;
    operation.derives_activation = true;
    derived[operation.output] = true;
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
