// Differentiates a graph: appends the operations that compute the gradients of its trainable weights.
#pragma once

#include "graph/graph.hpp"

#include <cstddef>
#include <vector>

namespace lockstep {

/// A tensor that several operations read, each through an alias of its own.
struct Fork {
  int tensor = -1;
  ActivationFunction activation = ActivationFunction::linear;  ///< fused into the tensor
  std::vector<int> uses;                                       ///< the aliases
  int layer = 0;                                               ///< the layer that computes the tensor
  std::size_t position = 0;  ///< index in Graph::forward after the operation that computes the tensor
};

/// Fills Graph::backward from Graph::forward, and sets `needs_gradient` of the loss' operand. An operation has a
/// backward operation only if the loss depends on it, and if it or an operation before it has parameters that are
/// trained.
void add_backward(Graph& graph, const std::vector<Fork>& forks);

}  // namespace lockstep
