// Messages between a launcher and its PMIx server: valid ones round-trip, invalid ones are rejected.
#include "cluster/pmix/pmix_messages.hpp"

#include "cluster/net/frame.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

using namespace lockstep;

namespace {

PmixJob two_hosts() {
  return {.nspace = "lockstep-mnist-7",
          .node_of_rank = {0, 1, 0, 1},
          .served = {1, 3},
          .session_directory = "/tmp/lockstep-world-1",
          .memory_directory = "/dev/shm/lockstep-world-1",
          .ranks_on_machine = 4,
          .tcp_address = "10.0.0.7",
          .first_tcp_port = 40000,
          .tcp_ports = 100};
}

}  // namespace

TEST_CASE("PMIx messages round-trip") {
  REQUIRE(read_job(to_body(two_hosts())) == two_hosts());

  const PmixReady ready{{{{"PMIX_RANK", "1"}, {"EMPTY", ""}, {"ODD", "a=b\nc"}}, {}}};
  REQUIRE(read_ready(to_body(ready)).environments == ready.environments);

  const std::string bytes("\0\xFF blob", 7);
  const PmixFence fence = read_fence(to_body(PmixFence{3, bytes}));
  REQUIRE(fence.sequence == 3);
  REQUIRE(fence.blob == bytes);

  const PmixFenceDone done = read_fence_done(to_body(PmixFenceDone{3, true, bytes}));
  REQUIRE(done.sequence == 3);
  REQUIRE(done.ok);
  REQUIRE(done.data == bytes);
  REQUIRE_FALSE(read_fence_done(to_body(PmixFenceDone{3, false, ""})).ok);

  const PmixAbort abort = read_abort(to_body(PmixAbort{2, -5, "N/A"}));
  REQUIRE(abort.rank == 2);
  REQUIRE(abort.status == -5);
  REQUIRE(abort.message == "N/A");
}

TEST_CASE("truncated or oversized PMIx messages are rejected") {
  const std::string job = to_body(two_hosts());
  for (std::size_t length = 0; length < job.size(); ++length) {
    REQUIRE_THROWS_AS(read_job(std::string_view(job).substr(0, length)), DataError);
  }
  REQUIRE_THROWS_AS(read_job(job + "x"), DataError);
  const std::string ready = to_body(PmixReady{{{{"A", "1"}}}});
  for (std::size_t length = 0; length < ready.size(); ++length) {
    REQUIRE_THROWS_AS(read_ready(std::string_view(ready).substr(0, length)), DataError);
  }
  REQUIRE_THROWS_AS(read_ready(std::string(8, '\x7F')), DataError);  // an impossibly large count
  REQUIRE_THROWS_AS(read_abort(std::string(24, '\x7F')), DataError);
}

TEST_CASE("the encoding of PMIx messages is stable") {
  // Rank 2, status -5, message "N/A". Numbers are 64-bit little-endian; a string follows its length.
  const std::string abort(
      "\2\0\0\0\0\0\0\0"
      "\xFB\xFF\xFF\xFF\xFF\xFF\xFF\xFF"
      "\3\0\0\0\0\0\0\0"
      "N/A",
      27);
  REQUIRE(to_body(PmixAbort{2, -5, "N/A"}) == abort);
  REQUIRE(read_abort(abort).status == -5);
}

TEST_CASE("PMIx messages with numbers beyond an int are rejected") {
  const auto abort_of_rank = [](std::uint64_t rank) { return BodyWriter().number(rank).number(0).text("").take(); };
  constexpr std::uint64_t max_int = std::numeric_limits<int>::max();
  REQUIRE(read_abort(abort_of_rank(max_int)).rank == std::numeric_limits<int>::max());
  REQUIRE_THROWS_AS(read_abort(abort_of_rank(max_int + 1)), DataError);
  REQUIRE_THROWS_AS(read_abort(abort_of_rank(std::uint64_t{1} << 32U)), DataError);
  REQUIRE(read_abort(abort_of_rank(~std::uint64_t{0})).rank == -1);
  REQUIRE_THROWS_AS(read_abort(abort_of_rank(std::uint64_t{1} << 63U)), DataError);
}

TEST_CASE("invalid PMIx jobs are rejected") {
  const auto refused = [](auto change) {
    PmixJob job = two_hosts();
    change(job);
    CHECK_THROWS_AS(check_job(job), DataError);
  };
  check_job(two_hosts());
  refused([](PmixJob& job) { job.nspace = ""; });
  refused([](PmixJob& job) { job.nspace = std::string(256, 'x'); });
  refused([](PmixJob& job) { job.node_of_rank = {1, 0, 1, 0}; });  // not in order of first ranks
  refused([](PmixJob& job) { job.node_of_rank = {0, 2, 0, 2}; });  // with a gap
  refused([](PmixJob& job) { job.node_of_rank = {0, -1, 0, -1}; });
  refused([](PmixJob& job) { job.served = {}; });
  refused([](PmixJob& job) { job.served = {3, 1}; });
  refused([](PmixJob& job) { job.served = {1, 1}; });
  refused([](PmixJob& job) { job.served = {1, 2}; });  // ranks of two nodes
  refused([](PmixJob& job) { job.served = {1, 5}; });  // rank 5 does not exist
  refused([](PmixJob& job) { job.served = {-1}; });
  refused([](PmixJob& job) { job.session_directory = ""; });
  refused([](PmixJob& job) { job.first_tcp_port = 65536; });
}
