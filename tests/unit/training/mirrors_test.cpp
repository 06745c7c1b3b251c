// Which ranks a comparison of mirrors names.
#include "session/mirrors.hpp"
#include "support/catch.hpp"
#include "support/messages.hpp"

#include <lockstep/core/error.hpp>

#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

/// The error of these digests; fails if there is none.
std::string error_of(const std::vector<MirrorDigest>& digests, const std::vector<int>& mirror_of_rank) {
  return message_of<PeerError>([&] { require_equal_mirrors(digests, mirror_of_rank, 40); });
}

}  // namespace

TEST_CASE("equal mirrors pass, however many ranks of a host share the work") {
  require_equal_mirrors(std::vector<MirrorDigest>{{7, 1}, {3, 1}, {4, 1}}, std::vector<int>{0, 1, 1}, 40);
  require_equal_mirrors(std::vector<MirrorDigest>{{~0ULL, 1}, {0, 1}, {1, 1}, {~1ULL, 1}}, std::vector<int>{0, 0, 1, 1},
                        40);
}

TEST_CASE("the host whose mirror differs from the most is named") {
  CHECK(contains(error_of({{7, 0}, {8, 0}, {7, 0}}, {0, 1, 2}), "after optimizer step 40, worker 1 of 3 holds other"));
  CHECK(contains(error_of({{7, 0}, {7, 0}, {3, 0}, {5, 0}}, {0, 1, 2, 2}), "workers 2 and 3 of 4 hold other"));
}

TEST_CASE("if nobody can say who is right, all are named") {
  CHECK(contains(error_of({{7, 0}, {8, 0}}, {0, 1}), "workers 0 and 1 of 2 hold other"));
  CHECK(contains(error_of({{7, 0}, {7, 0}, {8, 0}, {8, 0}}, {0, 1, 2, 3}), "workers 0, 1, 2 and 3 of 4 hold other"));
}

TEST_CASE("a rank's own variables are compared with all ranks', whatever its host") {
  CHECK(contains(error_of({{7, 1}, {0, 1}, {0, 2}}, {0, 0, 0}), "worker 2 of 3 holds other"));
}
