// When a step uses the buffers of a graph's tensors.
#pragma once

#include "graph/graph.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

/// Operations, as indices in the order of a step.
struct UseRange {
  std::size_t first = 0;
  std::size_t last = 0;
};

/// From the first use of both to the last.
[[nodiscard]] inline std::optional<UseRange> joined(const std::optional<UseRange>& a,
                                                    const std::optional<UseRange>& b) {
  if (!a || !b) return a ? a : b;
  return UseRange{std::min(a->first, b->first), std::max(a->last, b->last)};
}

/// Whether an operation of backward reads the values of its `input`: for gradients of its own, or for the derivative of
/// an activation that is fused into the tensor, which is computed from the tensor.
[[nodiscard]] bool backward_reads_input(const Operation& operation);

/// Empty: nothing uses it. Aliases have none of their own: theirs count as uses of the tensor whose buffers they share.
struct TensorUses {
  std::optional<UseRange> value;
  std::optional<UseRange> gradient;
  std::optional<UseRange> saved_for_backward;
  /// The normalization from whose input backward computes the value again, instead of keeping it. The operations of
  /// backward that read the value read it as their `input`, and are not among the uses of `value`.
  std::optional<std::size_t> recomputed_by = std::nullopt;
};

/// The uses of each tensor by `operations`, which run in this order. What the model predicts is used until the end.
///
/// A normalized value is recomputed if operations on few examples at a time are all that reads it in backward. They
/// read the recomputed examples from the cache, so this costs arithmetic, but no more memory traffic: the input is read
/// in place of the value.
[[nodiscard]] std::vector<TensorUses> find_tensor_uses(const Graph& graph, std::span<const Operation> operations);

}  // namespace lockstep
