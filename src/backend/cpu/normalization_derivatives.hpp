// Lets BatchNormalization multiply by the derivative of its fused activation in its own backward. Its sums read the
// gradient and the input anyway; else each reader of the output makes a pass over output and gradient.
#pragma once

#include "graph/graph.hpp"

namespace lockstep {

/// Sets Operation::derives_activation of the normalizations with relu or relu6, and makes their outputs' activations
/// linear for the operations that compute gradients of them.
void let_normalizations_derive(Graph& graph);

}  // namespace lockstep
