// Which places of a global batch belong together: the slices that replicas see, and those that ranks compute.
#pragma once

#include <cstddef>

namespace lockstep {

/// A half-open range of places in a global batch.
struct Slice {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
  friend bool operator==(const Slice&, const Slice&) = default;
};

/// Part `part` of `parts` contiguous parts of `count` places; sizes differ by at most one, the larger come first.
[[nodiscard]] Slice slice_of(std::size_t count, std::size_t part, std::size_t parts);

/// The places of a batch of `count` examples that a rank computes: those of its replicas, of which the job has so many.
[[nodiscard]] Slice rows_of_rank(std::size_t count, int rank, int ranks, std::size_t replicas);

}  // namespace lockstep
