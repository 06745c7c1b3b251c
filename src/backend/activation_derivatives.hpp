// Moves the derivative of a fused activation from the operations that read a tensor to the backward of the operation
// that computed it, where that reads gradient and values anyway.
#pragma once

#include "graph/graph.hpp"

#include <functional>

namespace lockstep {

/// Sets Operation::derives_activation of the backward operations that `derives` accepts, and makes their outputs'
/// activations linear for the operations that compute gradients of them.
void let_derive_activations(Graph& graph, const std::function<bool(const Operation&)>& derives);

}  // namespace lockstep
