// Splits a forward pass into segments. A segment runs its operations on one microbatch after the other, forward and
// backward, so that the tensors between them stay in the cache. Its operations must be independent for each example.
#pragma once

#include "backend/backend.hpp"

#include <cstddef>
#include <vector>

namespace lockstep {

/// The operations [begin, end) of Graph::forward.
struct Segment {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t microbatches = 1;
};

/// Chooses the segments of a graph that has its layouts; together they hold all operations. Sets
/// TensorSpec::microbatch_examples of tensors that are used only within one microbatch.
[[nodiscard]] std::vector<Segment> plan_segments(Graph& graph);

/// The segment of the forward operation that belongs to a backward operation.
[[nodiscard]] const Segment& segment_of(const std::vector<Segment>& segments, const Graph& graph,
                                        const Operation& backward);

}  // namespace lockstep
