// A model's beginning that runs through the batch slice by slice, forward and backward: the operations that treat each
// example for itself, so few examples at once that what they pass on stays in the cache.
#pragma once

#include "backend/backend.hpp"

#include <cstddef>

namespace lockstep {

struct Trunk {
  std::size_t length = 0;  ///< so many operations of Graph::forward, gather included
  int slices = 1;
  int output = -1;  ///< its last tensor; the inputs of its operations are tensors below this one
};

/// The trunk of a graph that has its layouts; of no operation where slices are not worth it. Tensors that nobody reads
/// but the slice that wrote them get memory for one slice (TensorSpec::passing_rows).
[[nodiscard]] Trunk slice_trunk(Graph& graph);

}  // namespace lockstep
