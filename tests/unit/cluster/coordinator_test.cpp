// The coordinator with simulated launchers: how generations form and end, which failures it detects and how fast, and
// its decisions.
#include "cluster/rendezvous/coordinator.hpp"

#include "resident_memory.hpp"
#include "simulated_job.hpp"

#include "core/clock.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

std::map<RestartCause, std::uint64_t> restarts(SimulatedJob& job) {
  JobStatus status;
  job.coordinator().add_to(status, job.now);
  return status.restarts;
}

}  // namespace

TEST_CASE("a job forms its world in any order of arrival, trains and exits with 0") {
  SimulatedJob job({.members = 3, .steps = 50});
  job.start(2);
  job.run(30);
  CHECK(job.logged(2, "still waiting after 10 s for the chief, worker 0 (a:1): connection refused"));
  CHECK(job.count_logged(2, "still waiting after") == 2);
  job.start(0);
  job.run(25);
  for (const std::size_t number : {0U, 2U}) {
    CHECK(job.logged(number, "still waiting after 10 s for worker 1 (not connected yet)"));
    CHECK(job.logged(number, "still waiting after 20 s"));
  }
  CHECK(job.trainers() == 0);
  job.start(1);
  REQUIRE(job.run_until([&]() { return job.all_train(); }, 1));
  CHECK(job.coordinator().generation() == 1);
  for (std::size_t number = 0; number < 3; ++number) {
    CHECK(job.at(number).fences == 2);
    CHECK(job.at(number).last_blobs == std::vector<std::string>{"blob of node 0", "blob of node 1", "blob of node 2"});
  }
  CHECK(job.coordinator().missing_members().empty());
  check_all_exit_with(job, 3, 0, "");
  CHECK(job.coordinator().exit_code() == 0);
}

TEST_CASE("one launcher per host serves PMIx and provides the environments of its ranks") {
  SimulatedJob job({.members = 4, .ranks_each = 2, .hosts = 2, .steps = 20});
  job.start_all();
  REQUIRE(job.run_until([&]() { return job.all_train(); }, 5));
  const Placement& map = job.at(3).member->placement();
  REQUIRE(map.ranks.size() == 8);
  CHECK(map.nodes == std::vector<Node>{{"node-0", 0, 8}, {"node-1", 1, 8}});
  CHECK(map.ranks[0] == RankPlacement{0, 0, 0});
  CHECK(map.ranks[3] == RankPlacement{1, 1, 1});
  CHECK(map.ranks[4] == RankPlacement{2, 0, 2});
  CHECK(map.ranks[7] == RankPlacement{3, 1, 3});
  CHECK(map.ranks_of_member(2) == std::vector<std::uint64_t>{4, 5});
  CHECK(map.ranks_of_node(1) == std::vector<std::uint64_t>{2, 3, 6, 7});
  CHECK(map.server_of(6) == 1);
  CHECK_FALSE(map.node_served_by(2));
  CHECK(job.at(1).fences == 2);
  CHECK(job.at(2).fences == 0);
  for (std::size_t number = 0; number < 4; ++number) CHECK(job.at(number).starts == 2);
  job.end_trainer(6, 0, 11);
  REQUIRE(job.run_until([&]() { return job.coordinator().generation() == 2 && job.all_train(); }, 5));
  CHECK(job.logged(0, "generation 1 ended: worker 3 (rank 6): its trainer was killed by signal 11"));
  check_all_exit_with(job, 4, 0, "");
}

TEST_CASE("nodes with equal names get distinct ones") {
  const std::vector<PeerInfo> members{{0, 1, "boot 1", "node", "", 1}, {1, 2, "boot 2", "node", "", 1}};
  const Placement map = place_ranks(3, "space", members);
  REQUIRE(map.nodes.size() == 2);
  CHECK(map.nodes[0].host_name != map.nodes[1].host_name);
  CHECK(map.generation == 3);
  CHECK(map.nspace == "space");
}

TEST_CASE("killed trainers, dead or silent launchers and stuck steps start the next generation") {
  const std::string what = GENERATE("trainer", "launcher", "silent launcher", "stopped trainer", "stopped, no waits");
  CAPTURE(what);
  SimulatedJob job({.members = 3});
  job.start_all();
  job.run(5);
  REQUIRE(job.all_train());
  const double began = job.now;
  const std::uint64_t step = job.step_now;
  std::string reason;
  RestartCause cause = RestartCause::stalled;
  if (what == "trainer") {
    cause = RestartCause::killed;
    job.end_trainer(1, 0, 9);
    reason = "worker 1 (rank 1): its trainer was killed by signal 9 (Killed)";
  } else if (what == "launcher") {
    cause = RestartCause::lost;
    job.kill(1);
    reason = "worker 1 (rank 1): lost: the connection broke";
  } else if (what == "silent launcher") {
    cause = RestartCause::lost;
    job.kill(1, false);
    reason = "worker 1 (rank 1): lost: no heartbeat for 4 s";
  } else {
    for (std::size_t number = 0; number < 3; ++number) job.at(number).reports_waits = what == "stopped trainer";
    job.trainer(1).is_stopped = true;
    reason = "no step for 4.";
  }
  const auto all_know = [&]() { return job.logged(0, "generation 1 ended") && job.logged(2, "generation 1 ended"); };
  REQUIRE(job.run_until(all_know, 5.0));
  CHECK(job.now - began <= 5.0);
  CHECK(restarts(job) == std::map<RestartCause, std::uint64_t>{{cause, 1}});
  for (const std::size_t number : {0U, 2U}) {
    CHECK(job.count_logged(number, "generation 1 ended: ") == 1);
    CHECK(job.logged(number, reason));
    CHECK(job.logged(number, "restart 1 of at most 10 without progress"));
  }
  if (what == "stopped trainer") CHECK(job.logged(0, "worker 1 (rank 1): no step for"));
  if (!job.at(1).member) {
    job.run(12);
    CHECK(job.coordinator().missing_members() == std::vector<std::size_t>{1});
    CHECK(job.logged(0, "for worker 1 (lost: "));
    job.start(1);
  }
  REQUIRE(job.run_until([&]() { return job.all_train(); }, 5));
  CHECK(job.coordinator().generation() == 2);
  REQUIRE(job.worlds.size() == 2);
  CHECK(job.worlds[0] != job.worlds[1]);
  job.run(1);
  CHECK(job.step_now >= step - 10);
  REQUIRE(job.run_until([&]() { return job.all_exited(); }, 200));
  for (std::size_t number = 0; number < 3; ++number) CHECK(job.at(number).exit->code == 0);
}

TEST_CASE("a rank that never starts to train is detected") {
  SimulatedJob job({.members = 2, .timeouts = {.busy_timeout = 20}});
  job.start(0);
  job.start(1);
  job.at(1).starts_stopped = true;
  job.run(19);
  CHECK(job.coordinator().generation() == 1);
  job.run(4);
  CHECK(job.logged(0, "worker 1 (rank 1): training did not begin within 20."));
}

TEST_CASE("non-retryable errors end all workers with their exit code") {
  for (const int code : {64, 65}) {
    SimulatedJob job({.members = 3});
    job.start_all();
    job.run(3);
    job.end_trainer(2, code);
    const double began = job.now;
    check_all_exit_with(job, 3, code, "worker 2 (rank 2): its trainer ended with exit code " + std::to_string(code));
    CHECK(job.now - began < 1);
    CHECK(job.trainers() == 0);
  }
}

TEST_CASE("a non-retryable error counts even after its generation has ended") {
  SimulatedJob job({.members = 3});
  job.start_all();
  job.run(3);
  for (std::size_t number = 0; number < 3; ++number) job.at(number).ending_takes = 1;
  job.end_trainer(1, 1);
  job.end_trainer(2, 65);
  check_all_exit_with(job, 3, 65, "worker 2 (rank 2)");
}

TEST_CASE("generations without progress are counted and progress resets the count") {
  SimulatedJob job({.members = 2, .timeouts = {.max_restarts = 3}});
  job.start_all();
  for (int i = 0; i < 8; ++i) {  // each generation makes progress
    REQUIRE(job.run_until([&]() { return job.all_train() && job.step_now >= 20U * (i + 1); }, 20));
    job.end_trainer(1, 70);
    CHECK(job.count_logged(0, "restart 1 of at most 3") == static_cast<std::size_t>(i) + 1);
  }
  CHECK(restarts(job) == std::map<RestartCause, std::uint64_t>{{RestartCause::exited, 8}});
  job.saved_step = 0;  // the backups are lost: later generations repeat old steps, which is no progress
  for (int i = 0; i < 3; ++i) {
    REQUIRE(job.run_until([&]() { return job.all_train(); }, 5));
    CHECK_FALSE(job.at(0).exit);
    job.run(1);
    job.end_trainer(1, 70);
  }
  check_all_exit_with(job, 2, 70, "giving up after 3 restarts without progress (--max-restarts)");
  CHECK(job.coordinator().generation() == 11);
}

TEST_CASE("with --max-restarts 0 the first failure ends the job") {
  SimulatedJob job({.members = 2, .timeouts = {.max_restarts = 0}});
  job.start_all();
  job.run(2);
  job.kill(1);
  REQUIRE(job.run_until([&]() { return job.at(0).exit.has_value(); }, 10));
  CHECK(job.at(0).exit->code == 75);
  CHECK(job.at(0).exit->message.find("--max-restarts is 0") != std::string::npos);
  job.start(1);  // starts after the end and receives the job result
  job.run(1);
  CHECK(job.at(1).exit->code == 75);
}

TEST_CASE("a rendezvous timeout names the missing workers") {
  SimulatedJob job({.members = 4, .timeouts = {.rendezvous_timeout = 60}});
  job.start(0);
  job.start(3);
  job.coordinator().set_absence_reason(1, "its name does not resolve");
  job.run(59);
  CHECK(job.logged(3, "worker 1 (its name does not resolve), worker 2 (not connected yet)"));
  CHECK_FALSE(job.at(3).exit);
  job.run(2);
  for (const std::size_t number : {0U, 3U}) {
    REQUIRE(job.at(number).exit);
    CHECK(job.at(number).exit->code == 75);
    CHECK(job.at(number).exit->message.find(
              "not all workers connected within 60 s (worker 1 (its name does not resolve), "
              "worker 2 (not connected yet))") != std::string::npos);
  }
}

TEST_CASE("a pause before a restart may be longer than the rendezvous timeout") {
  SimulatedJob job({.members = 2, .timeouts = {.rendezvous_timeout = 2, .report_interval = 1}});
  job.start_all();
  for (int restart = 1; restart <= 4; ++restart) {  // pauses of 1, 2, 4 and 8 seconds
    REQUIRE(job.run_until([&]() { return job.all_train(); }, 12));
    job.end_trainer(1, static_cast<int>(ExitCode::io));
  }
  REQUIRE(job.run_until([&]() { return job.all_train(); }, 12));
  CHECK(job.logged(1, "for the end of the pause before a restart"));
  CHECK_FALSE(job.some_exited());
}

TEST_CASE("many missing workers are named in one line") {
  SimulatedJob job({.members = 200, .timeouts = {.rendezvous_timeout = 30}});
  job.start(0);
  job.run(11);
  CHECK(job.logged(0, "worker 8 (not connected yet) and 191 more"));
}

TEST_CASE("members stop their trainers and wait when the chief is lost") {
  for (const bool is_seen : {true, false}) {
    SimulatedJob job({.members = 3});
    job.start_all();
    job.run(3);
    const double began = job.now;
    job.kill(0, is_seen);
    REQUIRE(job.run_until([&]() { return job.trainers() == 0; }, 5.0));
    CHECK(job.now - began <= 5.0);
    for (const std::size_t number : {1U, 2U}) {
      CHECK(job.count_logged(number, "lost the chief, worker 0 (a:1)") == 1);
      CHECK(job.logged(number, "generation 1 ended here; waiting for it to come back"));
    }
    job.run(100);
    job.start(0);
    REQUIRE(job.run_until([&]() { return job.all_train(); }, 5));
    CHECK(job.worlds.front() != job.worlds.back());  // both are generation 1, with different names
    CHECK(job.step_now >= 20);
  }
}

TEST_CASE("members exit with 75 if the chief does not return") {
  SimulatedJob job({.members = 2, .timeouts = {.rendezvous_timeout = 30}});
  job.start_all();
  job.run(3);
  job.kill(0);
  REQUIRE(job.run_until([&]() { return job.at(1).exit.has_value(); }, 31));
  CHECK(job.at(1).exit->code == 75);
  CHECK(job.at(1).exit->message.find("the chief, worker 0 (a:1), did not accept a connection within 30 s") !=
        std::string::npos);
}

TEST_CASE("a launcher that was stopped does not declare the others lost") {
  SimulatedJob job({.members = 3});
  job.start_all();
  job.run(2);
  job.coordinator().tick(job.now + 60);
  CHECK(job.coordinator().is_running());
  job.now += 60;
  job.run(3);
  CHECK(job.coordinator().generation() == 1);
  CHECK(job.all_train());
}

TEST_CASE("a job completes despite random kills, disconnects and freezes") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    RandomStream random(seed, RandomPurpose::test, 5);
    SimulatedJob job({.members = 4, .hosts = seed % 3, .timeouts = {.max_restarts = 100}, .steps = 300, .seed = seed});
    job.start_all();
    for (int fault = 0; fault < 25; ++fault) {
      job.run(0.1 + 3 * random.uniform());
      if (job.some_exited()) break;
      const std::size_t who = random.below(4);
      switch (random.below(5)) {
        case 0:
          job.kill(who, random.below(2) == 0);
          job.run(6 * random.uniform());
          job.start(who);
          break;
        case 1: job.end_trainer(who, 70); break;
        case 2: job.end_trainer(who, 0, 9); break;
        case 3: job.cut(who == 0 ? 1 : who); break;
        default:
          job.at(who).is_frozen = true;
          job.run(8 * random.uniform());
          job.at(who).is_frozen = false;
      }
    }
    REQUIRE(job.run_until([&]() { return job.all_exited(); }, 400));
    for (std::size_t number = 0; number < 4; ++number) CHECK(job.at(number).exit->code == 0);
    const std::set<std::string> different(job.worlds.begin(), job.worlds.end());
    CHECK(different.size() == job.worlds.size());
  }
}

TEST_CASE("a job that pauses before a restart says so") {
  SimulatedJob job({.members = 2});
  job.start_all();
  REQUIRE(job.run_until([&]() { return job.all_train(); }, 5));
  job.end_trainer(1, 74);
  JobStatus status;
  REQUIRE(job.run_until(
      [&]() {
        status = {};
        job.coordinator().add_to(status, job.now);
        return status.waiting_for == "the end of the pause before a restart";
      },
      1));
  CHECK(status.phase == JobPhase::waiting);
}

TEST_CASE("a thousand simulated members form a world") {
  SimulatedJob job({.members = 1000, .steps = 20});
  job.start_all();
  REQUIRE(job.run_until([&]() { return job.all_train(); }, 5));
  job.kill(500);
  job.start(500);
  REQUIRE(job.run_until([&]() { return job.coordinator().generation() == 2 && job.all_train(); }, 5));
  REQUIRE(job.run_until([&]() { return job.all_exited(); }, 20));
  CHECK(job.at(999).exit->code == 0);
}

TEST_CASE("the coordinator handles a thousand members cheaply") {
  constexpr std::size_t members = 1000;
  std::vector<std::string> names;
  for (std::size_t member = 0; member < members; ++member) names.push_back("worker " + std::to_string(member));
  const double memory_before = resident_megabytes();
  const double began = thread_cpu_seconds();
  Coordinator coordinator(names, "run", {}, 0);
  for (std::size_t member = 0; member < members; ++member) {
    REQUIRE(coordinator.join(peer_info(member), 0).empty());
    coordinator.receive(member, Ready{}, 0);
  }
  REQUIRE(coordinator.is_running());
  std::size_t bytes = 0;
  const auto count_bytes = [&]() {
    for (const CoordinatorAction& action : coordinator.take_actions()) {
      bytes += encode(to_frame(std::get<Send>(action).message)).size() * std::get<Send>(action).to.size();
    }
  };
  count_bytes();
  for (std::uint64_t sequence = 0; sequence < 3; ++sequence) {
    for (std::size_t member = 0; member < members; ++member) {
      coordinator.receive(member, Fence{1, sequence, std::string(110, 'x')}, 1);
    }
    count_bytes();
  }
  const double formed = thread_cpu_seconds() - began;
  double now = 1;
  for (int second = 0; second < 60; ++second, now += 1) {  // of training
    for (std::size_t member = 0; member < members; ++member) {
      coordinator.receive(member, Progress{1, member, Activity::training, static_cast<std::uint64_t>(second)}, now);
      coordinator.receive(member, Heartbeat{}, now);
    }
    for (int i = 0; i < 4; ++i) coordinator.tick(now + 0.25 * i);
    count_bytes();
  }
  const double trained = thread_cpu_seconds() - began - formed;
  const double memory = resident_megabytes() - memory_before;
  std::cout << "coordinator of 1000 members: rendezvous and three fences " << formed * 1000 << " ms ("
            << static_cast<double>(bytes) / 1e6 << " MB to send), a minute of training " << trained * 1000 << " ms, "
            << memory << " MB\n";
  CHECK(coordinator.is_running());
  CHECK(formed < 2);
#if !defined(__SANITIZE_ADDRESS__)  // AddressSanitizer keeps freed memory
  CHECK(memory < 150);
#endif
}
