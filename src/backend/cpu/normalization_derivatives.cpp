// See normalization_derivatives.hpp.
#include "backend/cpu/normalization_derivatives.hpp"

#include "backend/activation_derivatives.hpp"

namespace lockstep {

void let_normalizations_derive(Graph& graph) {
  let_derive_activations(graph, [](const Operation& operation) {
    return operation.kind == OperationKind::batch_normalization_backward &&
           (operation.activation == ActivationFunction::relu || operation.activation == activations::relu6);
  });
}

}  // namespace lockstep
