// Who shares memory with whom, and which part of every bucket a rank updates: arithmetic only.
#pragma once

#include <cstddef>
#include <vector>

#include "collective/communicator.hpp"

namespace lockstep {

/// The world as one rank sees it.
struct Topology {
  int rank = 0;
  int size = 1;
  int host = 0;  ///< mine
  int hosts = 1;
  std::vector<int> host_ranks;  ///< the ranks on my host, ascending
  std::size_t local = 0;        ///< my place among them
  std::size_t shares = 1;       ///< parts of a bucket; the host's rank at place s < shares owns part s

  /// From the host number of every rank (counted from 0, none left out).
  [[nodiscard]] static Topology of(const std::vector<int>& host_of_rank, int rank);

  [[nodiscard]] bool owns_share() const noexcept { return local < shares; }
};

/// Part `share` of `shares` of a bucket. Inner borders are multiples of 16 elements, so that no two owners write to one
/// cache line; the parts are equal up to that.
[[nodiscard]] BucketRange share_of(BucketRange bucket, std::size_t share, std::size_t shares) noexcept;

}  // namespace lockstep
