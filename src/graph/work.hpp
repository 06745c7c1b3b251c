// Estimates how much operations compute.
#pragma once

#include "graph/graph.hpp"

namespace lockstep {

/// Multiply-adds of the forward pass for one example; 0 for operations without a kernel.
[[nodiscard]] double multiply_adds_per_example(const Graph& graph, const Operation& operation);

/// The work of the whole model's forward pass for one example, in multiply-adds. Each element that an operation writes
/// counts as 8.
[[nodiscard]] double estimate_work(const Graph& graph);

}  // namespace lockstep
