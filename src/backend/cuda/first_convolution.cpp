// See first_convolution.hpp.
#include "backend/cuda/first_convolution.hpp"

#include "backend/activation_derivatives.hpp"
#include "backend/operation_scope.hpp"

#include <algorithm>

namespace lockstep::cuda {

namespace {

/// Whether an operation multiplies the gradient that it writes by a derivative in a pass of its own.
bool has_separate_pass(const Operation& operation) {
  return operation.kind == OperationKind::dense_backward || operation.kind == OperationKind::convolution_backward;
}

}  // namespace

void let_first_convolution_derive(Graph& graph) {
  const auto reads = [&graph](const Operation& operation, int tensor) {
    return operation.input >= 0 && value_owner(graph, operation.input) == tensor;
  };
  let_derive_activations(graph, [&](const Operation& operation) {
    if (operation.kind != OperationKind::convolution_backward || operation.input_gradient) return false;
    const TensorSpec& x = graph.tensors[operation.input];
    const TensorSpec& y = graph.tensors[operation.output];
    if (x.channels != 1 || x.type != y.type || operation.activation == ActivationFunction::linear) return false;
    return std::ranges::all_of(graph.backward, [&](const Operation& reader) {
      return !reads(reader, operation.output) || has_separate_pass(reader);
    });
  });
}

}  // namespace lockstep::cuda
