// See topology.hpp.
#include "collective/topology.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep {

namespace {

constexpr std::size_t cache_line_elements = 16;  // floats in a cache line

std::size_t border(Range bucket, std::size_t shard, std::size_t shards) noexcept {
  if (shard == shards) return bucket.end;
  const std::size_t exact = bucket.begin + (bucket.end - bucket.begin) * shard / shards;
  return std::max(bucket.begin, exact / cache_line_elements * cache_line_elements);
}

}  // namespace

Topology Topology::of(const std::vector<int>& host_of_rank, int rank) {
  Topology topology;
  topology.rank = rank;
  topology.size = static_cast<int>(host_of_rank.size());
  topology.host = host_of_rank.at(static_cast<std::size_t>(rank));
  topology.hosts = 1 + *std::max_element(host_of_rank.begin(), host_of_rank.end());
  for (int other = 0; other < topology.size; ++other) {
    if (host_of_rank[static_cast<std::size_t>(other)] != topology.host) continue;
    if (other == rank) topology.local_rank = topology.host_ranks.size();
    topology.host_ranks.push_back(other);
  }
  // Every shard has an owner on each host, so there are as many shards as the smallest host has ranks.
  topology.shards = topology.host_ranks.size();
  for (int host = 0; host < topology.hosts; ++host) {
    const auto ranks = static_cast<std::size_t>(std::count(host_of_rank.begin(), host_of_rank.end(), host));
    topology.shards = std::min(topology.shards, ranks);
  }
  return topology;
}

Range Topology::own_shard(Range bucket, bool whole) const noexcept {
  const std::size_t owners = whole ? 1 : shards;
  return local_rank < owners ? shard_of(bucket, local_rank, owners) : Range{bucket.end, bucket.end};
}

Range shard_of(Range bucket, std::size_t shard, std::size_t shards) noexcept {
  return {border(bucket, shard, shards), border(bucket, shard + 1, shards)};
}

}  // namespace lockstep
