// Half-open ranges of indices, and how a global batch is sliced among replicas and ranks.
#pragma once

#include <cstddef>

namespace lockstep {

/// The indices [begin, end). Extents of shapes are signed, so ranges of channels are too.
template <typename Index>
struct BasicRange {
  Index begin = 0;
  Index end = 0;
  [[nodiscard]] constexpr Index size() const noexcept { return end - begin; }
  [[nodiscard]] constexpr bool empty() const noexcept { return begin == end; }
  [[nodiscard]] constexpr bool overlaps(const BasicRange& other) const noexcept {
    return begin < other.end && other.begin < end;
  }
  friend bool operator==(const BasicRange&, const BasicRange&) = default;
};

/// Examples of a batch, or elements of an arena.
using Range = BasicRange<std::size_t>;

/// Cuts `count` indices into `slices` contiguous slices and returns slice `index`. Sizes differ by at most one; the
/// larger slices come first. Throws InternalError unless index < slices.
[[nodiscard]] Range slice_of(std::size_t count, std::size_t index, std::size_t slices);

/// The examples of a batch of `count` that a rank computes: the slices of its replicas. `replicas` counts those of the
/// whole job.
[[nodiscard]] Range examples_of_rank(std::size_t count, int rank, int ranks, std::size_t replicas);

/// The number of examples in the largest slice of a batch that any rank computes.
[[nodiscard]] std::size_t max_examples_per_rank(std::size_t count, int ranks, std::size_t replicas);

}  // namespace lockstep
