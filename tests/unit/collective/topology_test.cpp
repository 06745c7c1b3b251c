// Who owns what: shares cover every bucket once, and their number fits the smallest host.
#include "collective/topology.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/random.hpp"
#include "support/catch.hpp"

using namespace lockstep;

TEST_CASE("shares cover a bucket once, border on cache lines and are equal up to a line") {
  RandomStream random(1, RandomPurpose::test, 0);
  for (int i = 0; i < 1000; ++i) {
    const std::size_t begin = random.below(5000);
    const BucketRange bucket{begin, begin + random.below(3) * random.below(10000)};
    const std::size_t shares = 1 + random.below(9);
    std::size_t at = bucket.begin;
    for (std::size_t share = 0; share < shares; ++share) {
      const BucketRange part = share_of(bucket, share, shares);
      REQUIRE(part.begin == at);
      REQUIRE(part.begin <= part.end);
      REQUIRE((share + 1 == shares || part.end % 16 == 0 || part.end == bucket.begin));
      REQUIRE(part.end - part.begin <= (bucket.end - bucket.begin) / shares + 16);
      at = part.end;
    }
    REQUIRE(at == bucket.end);
  }
}

TEST_CASE("a small bucket goes to one owner") {
  REQUIRE(share_of({0, 15}, 0, 2).end == 0);
  REQUIRE(share_of({0, 15}, 1, 2).end == 15);
  REQUIRE(share_of({0, 32}, 0, 2).end == 16);
}

TEST_CASE("one host") {
  const Topology topology = Topology::of({0, 0, 0}, 2);
  REQUIRE(topology.hosts == 1);
  REQUIRE(topology.host_ranks == std::vector<int>{0, 1, 2});
  REQUIRE(topology.local == 2);
  REQUIRE(topology.shares == 3);
  REQUIRE(topology.owns_share());
}

TEST_CASE("the smallest host sets the number of shares") {
  const std::vector<int> hosts{0, 1, 0, 1, 0};
  const Topology last = Topology::of(hosts, 4);
  REQUIRE(last.hosts == 2);
  REQUIRE(last.host == 0);
  REQUIRE(last.host_ranks == std::vector<int>{0, 2, 4});
  REQUIRE(last.shares == 2);
  REQUIRE_FALSE(last.owns_share());
  const Topology other = Topology::of(hosts, 3);
  REQUIRE(other.host_ranks == std::vector<int>{1, 3});
  REQUIRE(other.local == 1);
  REQUIRE(other.shares == 2);
  REQUIRE(other.owns_share());
}
