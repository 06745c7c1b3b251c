// Which ranks share memory, and which shard of every bucket a rank updates. Pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "collective/communicator.hpp"

namespace lockstep {

/// The world as one rank sees it.
struct Topology {
  int rank = 0;
  int size = 1;
  int host = 0;  ///< of this rank
  int hosts = 1;
  std::vector<int> host_ranks;  ///< the ranks on this host, ascending
  std::size_t local_rank = 0;   ///< this rank's index in host_ranks
  std::size_t shards = 1;       ///< per bucket; local rank s < shards owns shard s

  /// `host_of_rank` holds every rank's host number; numbers count from 0 without gaps.
  [[nodiscard]] static Topology of(const std::vector<int>& host_of_rank, int rank);

  [[nodiscard]] bool has_shard() const noexcept { return local_rank < shards; }

  /// This rank's shard of a bucket, empty at its end if it has none. The first rank has all of a `whole` bucket.
  [[nodiscard]] Range own_shard(Range bucket, bool whole = false) const noexcept;
};

/// Cuts a bucket into `shards` nearly equal shards and returns shard `shard`. Inner borders are multiples of 16
/// elements, so that no two owners write to the same cache line.
[[nodiscard]] Range shard_of(Range bucket, std::size_t shard, std::size_t shards) noexcept;

}  // namespace lockstep
