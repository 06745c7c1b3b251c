// Chooses which of a model's first operations run in microbatches, forward and backward. They must be independent for
// each example. A microbatch is so small that its tensors stay in the cache between operations.
#pragma once

#include "backend/backend.hpp"

#include <cstddef>

namespace lockstep {

struct Microbatching {
  std::size_t length = 0;  ///< number of operations of Graph::forward, gather included
  std::size_t microbatches = 1;
  int output = -1;  ///< the last tensor they write; their inputs have smaller indices
};

/// Chooses the microbatching of a graph that has its layouts; length 0 if it would not be faster. Sets
/// TensorSpec::microbatch_examples of tensors that are used only within one microbatch.
[[nodiscard]] Microbatching plan_microbatches(Graph& graph);

}  // namespace lockstep
