// Estimates how much operations compute.
#pragma once

#include "graph/graph.hpp"

namespace lockstep {

/// Multiply-adds of the forward pass for one example; 0 for operations that multiply by no weights.
[[nodiscard]] double multiply_adds_per_example(const Graph& graph, const Operation& operation);

/// The work of the whole model's forward pass for one example, in multiply-adds. Each element that an operation writes
/// counts as 8.
[[nodiscard]] double estimate_work(const Graph& graph);

/// The part of an Embedding's rows that a batch of `examples` is expected to read, from 0 to 1. The gradient of the
/// others is zero. Assumes that indices follow Zipf's law, as those of words do: the r-th most frequent has 1/r of the
/// first's frequency.
[[nodiscard]] double expected_part_of_rows(const Graph& graph, const Operation& embedding, double examples);

}  // namespace lockstep
