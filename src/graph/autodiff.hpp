// Differentiates a graph: appends the operations that compute the gradients of its trainable weights.
#pragma once

#include "graph/graph.hpp"

namespace lockstep {

/// Fills Graph::backward from Graph::forward, and sets `input_gradient` of the loss. An operation has a backward
/// operation only if it or an operation before it has parameters.
void add_backward(Graph& graph);

}  // namespace lockstep
