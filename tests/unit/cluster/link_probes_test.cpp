// Links between workers: no generation begins while one is cut, and the cut link is named.
#include "cluster/rendezvous/link_probes.hpp"

#include "cluster/net/socket.hpp"
#include "cluster/rendezvous/link_prober.hpp"
#include "simulated_job.hpp"
#include "support/catch.hpp"
#include "support/sockets.hpp"

#include <lockstep/core/error.hpp>

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

void cut_both_ways(SimulatedJob& job) { job.cut_links = {{1, 2}, {2, 1}}; }

/// `member` at 10.0.0.`member`, the first one the chief.
std::vector<PeerInfo> peers(std::size_t number) {
  std::vector<PeerInfo> found;
  for (std::size_t i = 0; i < number; ++i) {
    const std::string address = "10.0.0." + std::to_string(i);
    found.push_back({i, i + 1, "host " + std::to_string(i), "node", address, 1, {address}, i == 0 ? 0U : 5000U});
  }
  found.front().address.clear();
  return found;
}

std::vector<std::string> names(std::size_t number) {
  std::vector<std::string> found;
  for (std::size_t i = 0; i < number; ++i) found.push_back("worker " + std::to_string(i));
  return found;
}

bool is_probed(const std::vector<PeerInfo>& members) {
  LinkProbes probes(names(members.size()));
  const bool asks = probes.next_round(members, 0).has_value();
  CHECK(probes.are_proved() != asks);
  return asks;
}

}  // namespace

TEST_CASE("no generation begins while two workers cannot reach each other") {
  SimulatedJob job({.members = 3, .steps = 50});
  cut_both_ways(job);
  job.start_all();
  job.run(25);
  CHECK(job.coordinator().generation() == 0);
  const std::string link = "worker 1 (10.0.0.1) and worker 2 (10.0.0.2) cannot reach each other: no answer";
  for (std::size_t number = 0; number < 3; ++number) {
    CHECK(job.count_logged(number, link + "; let firewalls and network policies admit connections") == 1);
    CHECK(job.logged(number, "still waiting after 10 s for the network: " + link));
  }
  // After pauses of 1, 2, 4, 8 s; the chief reaches all.
  CHECK(job.at(0).probes == 5);
  JobStatus status;
  job.coordinator().add_to(status, job.now);
  CHECK(status.waiting_for == "the network: " + link);
  job.cut_links.clear();
  REQUIRE(job.run_until([&]() { return job.all_train(); }, 10.2));
  CHECK(job.coordinator().generation() == 1);
  check_all_exit_with(job, 3, 0, "");
}

TEST_CASE("a link that is cut in one direction is named by it") {
  SimulatedJob job({.members = 4});
  job.cut_links = {{2, 1}, {0, 3}};
  job.start_all();
  job.run(2);
  CHECK(job.logged(1, "worker 0 (10.0.0.0) cannot reach worker 3 (10.0.0.3): no answer, "));
  CHECK(job.logged(1, "worker 2 (10.0.0.2) cannot reach worker 1 (10.0.0.1): no answer; "));
  job.cut_links = {{0, 3}};
  job.run(3);
  CHECK(job.logged(1, "worker 0 (10.0.0.0) cannot reach worker 3 (10.0.0.3): no answer; "));
}

TEST_CASE("a job whose links stay cut ends with 75 after the rendezvous timeout") {
  SimulatedJob job({.members = 3, .timeouts = {.rendezvous_timeout = 60}});
  cut_both_ways(job);
  job.start_all();
  job.run(59);
  CHECK_FALSE(job.some_exited());
  check_all_exit_with(job, 3, 75,
                      "no world can form within 60 s: worker 1 (10.0.0.1) and worker 2 (10.0.0.2) cannot reach each "
                      "other: no answer; let firewalls");
  CHECK(job.worlds.empty());
}

TEST_CASE("a link that is cut during training costs one restart") {
  SimulatedJob job({.members = 3, .steps = 200});
  job.start_all();
  REQUIRE(job.run_until([&]() { return job.step_now > 20; }, 10));
  cut_both_ways(job);
  job.end_trainer(2, 0, 9);
  job.run(60);
  CHECK(job.coordinator().generation() == 1);
  CHECK(job.logged(0, "restart 1 of at most 10 without progress"));
  job.cut_links.clear();
  REQUIRE(job.run_until([&]() { return job.all_train(); }, 10.2));
  CHECK(job.coordinator().generation() == 2);
  check_all_exit_with(job, 3, 0, "", 30);
}

TEST_CASE("a link that is cut before the first step is found while all ranks wait") {
  SimulatedJob job({.members = 3, .steps = 50});
  job.all_wait = true;
  job.start_all();
  REQUIRE(job.run_until([&]() { return job.all_train(); }, 2));
  job.run(10);
  CHECK(job.at(0).probes == 2);  // a rank may load or compile for long
  CHECK(job.coordinator().is_running());
  cut_both_ways(job);
  job.run(12);
  CHECK(
      job.logged(0,
                 "generation 1 ended: worker 1 (rank 1): worker 1 (10.0.0.1) and worker 2 (10.0.0.2) cannot reach each "
                 "other: no answer; restart 1 of at most 10"));
  job.run(20);
  CHECK(job.coordinator().generation() == 1);
  job.cut_links.clear();
  job.all_wait = false;
  REQUIRE(job.run_until([&]() { return job.all_train(); }, 10.2));
  check_all_exit_with(job, 3, 0, "", 30);
}

TEST_CASE("members that come and go are probed anew") {
  SimulatedJob job({.members = 3, .steps = 50});
  cut_both_ways(job);
  job.start_all();
  job.run(12);
  job.kill(2);
  job.run(2);
  JobStatus status;
  job.coordinator().add_to(status, job.now);
  CHECK(status.waiting_for.starts_with("worker 2 (lost"));
  job.cut_links.clear();
  job.start(2);
  REQUIRE(job.run_until([&]() { return job.all_train(); }, 2));
  CHECK(job.coordinator().generation() == 1);
}

TEST_CASE("only links between hosts are probed") {
  CHECK(is_probed(peers(2)));
  CHECK_FALSE(is_probed(peers(1)));
  std::vector<PeerInfo> members = peers(2);
  SECTION("the chief's host") { members[1].address = "10.0.0.0"; }
  SECTION("a worker that reached the chief by its loopback address") { members[1].address = "127.0.0.1"; }
  SECTION("a worker that could not listen") { members[1].probe_port = 0; }
  SECTION("an address of the other family") { members[1].address = "fd00::7"; }
  CHECK_FALSE(is_probed(members));
}

TEST_CASE("results of other rounds do not count") {
  const std::vector<PeerInfo> members = peers(2);
  LinkProbes probes(names(2));
  REQUIRE(probes.next_round(members, 0)->round == 1);
  CHECK_FALSE(probes.receive(0, {1, {}}, 0));
  CHECK_THROWS_AS(probes.receive(0, {1, {}}, 0), DataError);
  CHECK_THROWS_AS(probes.receive(1, {2, {}}, 0), DataError);
  CHECK_THROWS_AS(probes.receive(1, {1, {{2, "it is nobody"}}}, 0), DataError);
  probes.reset();
  REQUIRE(probes.next_round(members, 0)->round == 2);
  CHECK_FALSE(probes.receive(1, {1, {}}, 0));
  CHECK_FALSE(probes.receive(0, {2, {}}, 0));
  CHECK_FALSE(probes.are_proved());
  CHECK_FALSE(probes.receive(1, {2, {}}, 0));
  CHECK(probes.are_proved());
}

TEST_CASE("many cut links take one line") {
  const std::vector<PeerInfo> members = peers(100);
  LinkProbes probes(names(100));
  REQUIRE(probes.next_round(members, 0));
  for (std::size_t from = 0; from < 100; ++from) {
    PeersProbed result{1, {}};
    for (std::uint64_t to = 1; to < 100; ++to) result.unreachable.push_back({to, std::string(5000, 'x')});
    CHECK(probes.receive(from, result, 0) == (from == 99));
  }
  CHECK(probes.problem().size() < 1500);
  CHECK(probes.problem().ends_with(" more"));
}

TEST_CASE("a prober reports the ports that it cannot connect to") {
  const Socket listener = listen_on(0);
  const std::uint16_t closed = free_port();
  LinkProber prober;
  prober.start({7, {{1, "127.0.0.1", port_of(listener)}, {2, "127.0.0.1", closed}, {3, "no address", 5000}}});
  std::optional<PeersProbed> result;
  while (!(result = prober.take_result())) {
    pollfd entry{prober.descriptor(), POLLIN, 0};
    REQUIRE(poll(&entry, 1, 20'000) == 1);
  }
  CHECK(result->round == 7);
  REQUIRE(result->unreachable.size() == 1);
  CHECK(result->unreachable[0].member == 2);
  CHECK(result->unreachable[0].why == "connection refused");
  CHECK_FALSE(prober.take_result());
}
