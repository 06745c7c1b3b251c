// Ownership: shards cover every bucket exactly once, and the smallest host limits their number.
#include "collective/topology.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/random.hpp"
#include "support/catch.hpp"

using namespace lockstep;

TEST_CASE("shards cover a bucket once, align to cache lines and differ by at most one line") {
  RandomStream random(1, RandomPurpose::test, 0);
  for (int i = 0; i < 1000; ++i) {
    const std::size_t begin = random.below(5000);
    const Range bucket{begin, begin + random.below(3) * random.below(10000)};
    const std::size_t shards = 1 + random.below(9);
    std::size_t at = bucket.begin;
    for (std::size_t shard = 0; shard < shards; ++shard) {
      const Range part = shard_of(bucket, shard, shards);
      REQUIRE(part.begin == at);
      REQUIRE(part.begin <= part.end);
      REQUIRE((shard + 1 == shards || part.end % 16 == 0 || part.end == bucket.begin));
      REQUIRE(part.end - part.begin <= (bucket.end - bucket.begin) / shards + 16);
      at = part.end;
    }
    REQUIRE(at == bucket.end);
  }
}

TEST_CASE("a small bucket has one owner") {
  REQUIRE(shard_of({0, 15}, 0, 2).end == 0);
  REQUIRE(shard_of({0, 15}, 1, 2).end == 15);
  REQUIRE(shard_of({0, 32}, 0, 2).end == 16);
}

TEST_CASE("one host holds one shard per rank") {
  const Topology topology = Topology::of({0, 0, 0}, 2);
  REQUIRE(topology.hosts == 1);
  REQUIRE(topology.host_ranks == std::vector<int>{0, 1, 2});
  REQUIRE(topology.local_rank == 2);
  REQUIRE(topology.shards == 3);
  REQUIRE(topology.has_shard());
}

TEST_CASE("the smallest host sets the number of shards") {
  const std::vector<int> hosts{0, 1, 0, 1, 0};
  const Topology last = Topology::of(hosts, 4);
  REQUIRE(last.hosts == 2);
  REQUIRE(last.host == 0);
  REQUIRE(last.host_ranks == std::vector<int>{0, 2, 4});
  REQUIRE(last.shards == 2);
  REQUIRE_FALSE(last.has_shard());
  const Topology other = Topology::of(hosts, 3);
  REQUIRE(other.host_ranks == std::vector<int>{1, 3});
  REQUIRE(other.local_rank == 1);
  REQUIRE(other.shards == 2);
  REQUIRE(other.has_shard());
}

TEST_CASE("a whole bucket belongs to the first rank of each host") {
  const std::vector<int> hosts{0, 1, 0, 1, 0};
  for (int rank = 0; rank < 5; ++rank) {
    const Topology topology = Topology::of(hosts, rank);
    const Range all = topology.own_shard({64, 256}, true);
    REQUIRE(all.end == 256);
    REQUIRE(all.begin == (topology.local_rank == 0 ? 64 : 256));
    const Range cut = topology.own_shard({64, 256});
    REQUIRE(cut.end - cut.begin == (topology.has_shard() ? 96 : 0));
  }
}
