// See topology.hpp.
#include "collective/topology.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep {

namespace {

constexpr std::size_t line_elements = 16;  // floats in a cache line

std::size_t border(BucketRange bucket, std::size_t share, std::size_t shares) noexcept {
  if (share == shares) return bucket.end;
  const std::size_t exact = bucket.begin + (bucket.end - bucket.begin) * share / shares;
  return std::max(bucket.begin, exact / line_elements * line_elements);
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
    if (other == rank) topology.local = topology.host_ranks.size();
    topology.host_ranks.push_back(other);
  }
  // A share is summed among one owner on each host, so there are as many as the smallest host has ranks.
  topology.shares = topology.host_ranks.size();
  for (int host = 0; host < topology.hosts; ++host) {
    const auto ranks = static_cast<std::size_t>(std::count(host_of_rank.begin(), host_of_rank.end(), host));
    topology.shares = std::min(topology.shares, ranks);
  }
  return topology;
}

BucketRange share_of(BucketRange bucket, std::size_t share, std::size_t shares) noexcept {
  return {border(bucket, share, shares), border(bucket, share + 1, shares)};
}

}  // namespace lockstep
