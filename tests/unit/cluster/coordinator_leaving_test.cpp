// Who is told to go and comes back, who goes on without whom, and how a job comes to its end.
#include "cluster/coordinator.hpp"

#include "simulated_job.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("a worker that is told to go lets all save, costs no restart, and is waited for") {
  SimulatedJob job({.members = 3, .limits = {.max_restarts = 0}});
  job.start_all();
  job.run(3.5);
  job.at(1).member->leave("SIGTERM");
  REQUIRE(job.run_until([&]() { return job.at(1).exit.has_value(); }, 2));
  CHECK(job.at(1).exit->code == 75);
  const std::uint64_t saved = job.saved_step;
  CHECK(saved == job.step_now);
  CHECK(job.logged(0, "worker 1 (rank 1) leaves: SIGTERM; all save, and wait for it to come back"));
  CHECK(job.logged(2, "generation 1 has ended: worker 1 (rank 1): left: SIGTERM; the others wait"));
  job.kill(1);
  job.run(11);
  CHECK(job.logged(0, "for worker 1 (left: SIGTERM)"));
  job.start(1);
  REQUIRE(job.run_until([&]() { return job.all_train(); }, 5));
  CHECK(job.step_now >= saved);
  job.at(2).member->leave("SIGTERM");
  job.run(0.1);
  job.kill(2);  // before anybody has saved
  job.start(2);
  REQUIRE(job.run_until([&]() { return job.all_train() && job.coordinator().generation() == 3; }, 5));
  CHECK_FALSE(job.at(0).exit);
}

TEST_CASE("a worker that is told to go while all wait goes at once") {
  SimulatedJob job({.members = 3});
  job.start(0);
  job.start(1);
  job.run(1);
  job.at(1).member->leave("SIGTERM");
  job.run(0.2);
  CHECK(job.at(1).exit->code == 75);
}

TEST_CASE("no generation begins with a member that leaves, and none ends for one whose work is done") {
  Coordinator coordinator({"worker 0", "worker 1"}, "run", {}, 0);
  for (const std::uint64_t member : {0U, 1U}) REQUIRE(coordinator.admit(introduction(member), 0).empty());
  coordinator.receive(1, Ready{}, 0);
  coordinator.receive(1, Leaving{"SIGTERM"}, 0);
  coordinator.receive(0, Ready{}, 0);
  CHECK_FALSE(coordinator.is_running());
  coordinator.lose(1, "the connection broke", 1);
  REQUIRE(coordinator.admit(introduction(1, 2), 1).empty());
  coordinator.receive(1, Ready{}, 1);
  REQUIRE(coordinator.is_running());

  coordinator.receive(1, ChildEnded{1, 1, 0, 0}, 2);
  coordinator.lose(1, "the connection broke", 2);
  CHECK(coordinator.is_running());
  coordinator.receive(0, ChildEnded{1, 0, 0, 0}, 2);
  CHECK(coordinator.verdict() == 0);
}

TEST_CASE("whoever leaves is not waited for without end") {
  Coordinator coordinator({"worker 0", "worker 1"}, "run", {}, 0);
  for (const std::uint64_t member : {0U, 1U}) {
    REQUIRE(coordinator.admit(introduction(member), 0).empty());
    coordinator.receive(member, Ready{}, 0);
  }
  coordinator.receive(1, Leaving{"SIGTERM"}, 1);
  coordinator.receive(1, ChildEnded{1, 1, 75, 0}, 1);
  for (double now = 1; now < 40; now += 0.5) {  // the other rank never ends
    for (const std::uint64_t member : {0U, 1U}) coordinator.receive(member, Heartbeat{}, now);
    coordinator.tick(now);
    CHECK(coordinator.is_running() == (now <= 1 + Supervision{}.leave));
  }
}

TEST_CASE(
    "with --min-workers the others go on without who does not come back, and take it in at a backup when it does") {
  Supervision limits;
  limits.min_workers = 2;
  limits.rejoin_timeout = 20;
  SimulatedJob job({.members = 4, .ranks_each = 2, .limits = limits});
  job.start_all();
  job.run(5);
  REQUIRE(job.trainers() == 8);
  CHECK(job.at(0).member->map().replicas == 8);
  job.kill(1);
  job.run(19);
  CHECK(job.trainers() == 0);
  REQUIRE(job.run_until([&]() { return job.all_train(); }, 3));
  CHECK(job.logged(3, "3 of 4 workers go on without worker 1 (lost: the connection broke)"));
  const WorldMap& map = job.at(0).member->map();
  CHECK(map.ranks.size() == 6);
  CHECK(map.replicas == 8);
  CHECK(map.ranks[2] == RankPlace{2, 1, 0});

  job.run(1.5);
  const std::uint64_t step_before = job.step_now;
  job.start(1);
  REQUIRE(job.run_until([&]() { return job.coordinator().generation() == 3 && job.all_train(); }, 3));
  CHECK(job.logged(2, "worker 1 is back; it is taken in at the next backup"));
  CHECK(job.logged(2, "generation 2 has ended: worker 1 is back, and is taken in"));
  CHECK(job.trainers() == 8);
  CHECK(job.step_now >= step_before);  // nothing is done twice
  CHECK(job.at(0).member->map().replicas == 8);
  check_all_exit_with(job, 4, 0, "", 120);
}

TEST_CASE("fewer than --min-workers do not go on, and a second loss is waited for as long as the first") {
  Supervision limits;
  limits.min_workers = 2;
  limits.rejoin_timeout = 20;
  SimulatedJob job({.members = 3, .limits = limits});
  job.start_all();
  job.run(5);
  job.kill(1);
  REQUIRE(job.run_until([&]() { return job.coordinator().generation() == 2 && job.all_train(); }, 30));
  job.kill(2);
  job.run(100);
  CHECK(job.trainers() == 0);
  job.start(1);
  REQUIRE(job.run_until([&]() { return job.coordinator().generation() == 3 && job.all_train(); }, 2));
  CHECK(job.trainers() == 2);
  job.start(2);
  check_all_exit_with(job, 3, 0, "", 120);
}

TEST_CASE("without --min-workers nobody goes on alone") {
  SimulatedJob job({.members = 2});
  job.start_all();
  job.run(5);
  job.kill(1);
  job.run(500);
  CHECK(job.trainers() == 0);
  CHECK(job.coordinator().generation() == 1);
}

TEST_CASE("once a rank of ours has ended with 0 all work is done, and who is lost after that is not missed") {
  const bool is_ours = GENERATE(true, false);  // another program's ranks do not wait for each other at their end
  const bool is_lost = GENERATE(true, false);
  CAPTURE(is_ours, is_lost);
  Coordinator coordinator({"worker 0", "worker 1"}, "run", {}, 0);
  for (const std::uint64_t member : {0U, 1U}) {
    REQUIRE(coordinator.admit(introduction(member), 0).empty());
    coordinator.receive(member, Ready{}, 0);
  }
  if (is_ours) coordinator.receive(0, Progress{1, 0, Activity::training, 7, 0, 0.5, 100}, 1);
  coordinator.receive(0, ChildEnded{1, 0, 0, 0}, 1);
  if (is_lost) {
    coordinator.lose(1, "the connection broke", 1);
  } else {
    coordinator.receive(1, ChildEnded{1, 1, 0, 9}, 1);
  }
  CHECK(coordinator.verdict() == (is_ours ? std::optional(0) : std::nullopt));
  if (!is_ours) return;
  // It is told when it comes back.
  coordinator.receive(0, Farewell{}, 1);
  coordinator.tick(2);
  if (is_lost) {
    REQUIRE(coordinator.admit(introduction(1, 2), 10).empty());
  }
  const std::vector<Message> said = said_to(coordinator, 1);
  CHECK(std::any_of(said.begin(), said.end(), [](const Message& it) { return std::holds_alternative<Verdict>(it); }));
}

TEST_CASE("a chief that comes back after the work was done learns it from the others, and trains no more") {
  Coordinator coordinator({"worker 0", "worker 1", "worker 2"}, "run", {}, 0);
  for (const std::uint64_t member : {0U, 1U}) REQUIRE(coordinator.admit(introduction(member), 0).empty());
  coordinator.receive(0, Ready{}, 0);
  coordinator.receive(1, Done{}, 1);
  CHECK(coordinator.verdict() == 0);
  CHECK(coordinator.generation() == 0);
}
