// Workers that leave and return, jobs that continue with fewer workers, and the end of a job.
#include "cluster/rendezvous/coordinator.hpp"

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

TEST_CASE("the only worker of a job is not awaited when it leaves") {
  SimulatedJob job({.members = 1});
  job.start_all();
  job.run(3.5);
  job.at(0).member->leave("SIGINT");
  REQUIRE(job.run_until([&]() { return job.at(0).exit.has_value(); }, 2));
  CHECK(job.at(0).exit->code == 75);
  CHECK(job.logged(0, "leaves: SIGINT; all ranks save what they have trained and end"));
}

TEST_CASE("a worker that receives SIGTERM triggers a backup, costs no restart and is awaited") {
  SimulatedJob job({.members = 3, .timeouts = {.max_restarts = 0}});
  job.start_all();
  job.run(3.5);
  job.at(1).member->leave("SIGTERM");
  REQUIRE(job.run_until([&]() { return job.at(1).exit.has_value(); }, 2));
  CHECK(job.at(1).exit->code == 75);
  const std::uint64_t saved = job.saved_step;
  CHECK(saved == job.step_now);
  CHECK(job.logged(
      0, "worker 1 (rank 1) leaves: SIGTERM; all ranks save what they have trained and wait for it to come back"));
  CHECK(job.logged(2, "generation 1 ended: worker 1 (rank 1): left: SIGTERM; waiting for it"));
  job.kill(1);
  job.run(11);
  CHECK(job.logged(0, "for worker 1 (left: SIGTERM)"));
  job.start(1);
  REQUIRE(job.run_until([&]() { return job.all_train(); }, 5));
  CHECK(job.step_now >= saved);
  job.at(2).member->leave("SIGTERM");
  job.run(0.1);
  job.kill(2);  // before any rank has saved
  job.start(2);
  REQUIRE(job.run_until([&]() { return job.all_train() && job.coordinator().generation() == 3; }, 5));
  CHECK_FALSE(job.at(0).exit);
}

TEST_CASE("a worker that receives SIGTERM during rendezvous leaves at once") {
  SimulatedJob job({.members = 3});
  job.start(0);
  job.start(1);
  job.run(1);
  job.at(1).member->leave("SIGTERM");
  job.run(0.2);
  CHECK(job.at(1).exit->code == 75);
}

TEST_CASE("no generation starts while a member leaves, and a finished member's exit ends none") {
  Coordinator coordinator({"worker 0", "worker 1"}, "run", {}, 0);
  for (const std::uint64_t member : {0U, 1U}) REQUIRE(coordinator.join(peer_info(member), 0).empty());
  coordinator.receive(1, Ready{}, 0);
  coordinator.receive(1, Leaving{"SIGTERM"}, 0);
  coordinator.receive(0, Ready{}, 0);
  CHECK_FALSE(coordinator.is_running());
  coordinator.member_lost(1, "the connection broke", 1);
  REQUIRE(coordinator.join(peer_info(1, 2), 1).empty());
  coordinator.receive(1, Ready{}, 1);
  REQUIRE(coordinator.is_running());

  coordinator.receive(1, TrainerExited{1, 1, 0, 0}, 2);
  coordinator.member_lost(1, "the connection broke", 2);
  CHECK(coordinator.is_running());
  coordinator.receive(0, TrainerExited{1, 0, 0, 0}, 2);
  CHECK(coordinator.exit_code() == 0);
}

TEST_CASE("a trainer that is killed in a leaving worker has left") {
  Coordinator coordinator({"worker 0", "worker 1"}, "run", {}, 0);
  for (const std::uint64_t member : {0U, 1U}) {
    REQUIRE(coordinator.join(peer_info(member), 0).empty());
    coordinator.receive(member, Ready{}, 0);
  }
  coordinator.receive(1, Leaving{"SIGTERM"}, 1);
  coordinator.receive(1, TrainerExited{1, 1, 0, 15}, 1);
  JobStatus status;
  coordinator.add_to(status, 1);
  CHECK(status.restarts == std::map<RestartCause, std::uint64_t>{{RestartCause::left, 1}});
}

TEST_CASE("waiting for a leaving worker times out") {
  Coordinator coordinator({"worker 0", "worker 1"}, "run", {}, 0);
  for (const std::uint64_t member : {0U, 1U}) {
    REQUIRE(coordinator.join(peer_info(member), 0).empty());
    coordinator.receive(member, Ready{}, 0);
  }
  coordinator.receive(1, Leaving{"SIGTERM"}, 1);
  coordinator.receive(1, TrainerExited{1, 1, 75, 0}, 1);
  for (double now = 1; now < 40; now += 0.5) {  // the other rank does not exit
    for (const std::uint64_t member : {0U, 1U}) coordinator.receive(member, Heartbeat{}, now);
    coordinator.tick(now);
    CHECK(coordinator.is_running() == (now <= 1 + SupervisionTimeouts{}.leave_timeout));
  }
}

TEST_CASE("with --min-workers the others continue without a lost worker and readmit it at a backup") {
  SupervisionTimeouts timeouts;
  timeouts.min_workers = 2;
  timeouts.rejoin_timeout = 20;
  SimulatedJob job({.members = 4, .ranks_each = 2, .timeouts = timeouts});
  job.start_all();
  job.run(5);
  REQUIRE(job.trainers() == 8);
  CHECK(job.at(0).member->placement().full_world_size == 8);
  job.kill(1);
  job.run(19);
  CHECK(job.trainers() == 0);
  REQUIRE(job.run_until([&]() { return job.all_train(); }, 3));
  CHECK(job.logged(3, "3 of 4 workers continue without worker 1 (lost: the connection broke)"));
  const Placement& map = job.at(0).member->placement();
  CHECK(map.ranks.size() == 6);
  CHECK(map.full_world_size == 8);
  CHECK(map.ranks[2] == RankPlacement{2, 1, 0});

  job.run(1.5);
  const std::uint64_t step_before = job.step_now;
  job.start(1);
  REQUIRE(job.run_until([&]() { return job.coordinator().generation() == 3 && job.all_train(); }, 3));
  CHECK(job.logged(2, "worker 1 is back and joins after the next backup"));
  CHECK(job.logged(2, "generation 2 ended: worker 1 is back and joins the next generation"));
  CHECK(job.trainers() == 8);
  CHECK(job.step_now >= step_before);  // no step is repeated
  CHECK(job.at(0).member->placement().full_world_size == 8);
  check_all_exit_with(job, 4, 0, "", 120);
}

TEST_CASE("fewer than --min-workers wait, and a second loss restarts the timeout") {
  SupervisionTimeouts timeouts;
  timeouts.min_workers = 2;
  timeouts.rejoin_timeout = 20;
  SimulatedJob job({.members = 3, .timeouts = timeouts});
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

TEST_CASE("without --min-workers training does not continue with fewer workers") {
  SimulatedJob job({.members = 2});
  job.start_all();
  job.run(5);
  job.kill(1);
  job.run(500);
  CHECK(job.trainers() == 0);
  CHECK(job.coordinator().generation() == 1);
}

TEST_CASE("after a rank exits with 0 the job is complete and later losses are ignored") {
  // Only programs that report progress are Lockstep's. Ranks of others do not wait for each other before they exit.
  const bool has_reported = GENERATE(true, false);
  const bool is_lost = GENERATE(true, false);
  CAPTURE(has_reported, is_lost);
  Coordinator coordinator({"worker 0", "worker 1"}, "run", {}, 0);
  for (const std::uint64_t member : {0U, 1U}) {
    REQUIRE(coordinator.join(peer_info(member), 0).empty());
    coordinator.receive(member, Ready{}, 0);
  }
  if (has_reported) coordinator.receive(0, Progress{1, 0, Activity::training, 7, 0, 0.5, 100}, 1);
  coordinator.receive(0, TrainerExited{1, 0, 0, 0}, 1);
  if (is_lost) {
    coordinator.member_lost(1, "the connection broke", 1);
  } else {
    coordinator.receive(1, TrainerExited{1, 1, 0, 9}, 1);
  }
  CHECK(coordinator.exit_code() == (has_reported ? std::optional(0) : std::nullopt));
  if (!has_reported) return;
  // A member that returns receives the job result.
  coordinator.receive(0, Goodbye{}, 1);
  coordinator.tick(2);
  if (is_lost) {
    REQUIRE(coordinator.join(peer_info(1, 2), 10).empty());
  }
  const std::vector<Message> said = messages_to(coordinator, 1);
  CHECK(std::any_of(said.begin(), said.end(), [](const Message& it) { return std::holds_alternative<JobResult>(it); }));
}

TEST_CASE("a restarted chief learns from the members that the job is complete") {
  Coordinator coordinator({"worker 0", "worker 1", "worker 2"}, "run", {}, 0);
  for (const std::uint64_t member : {0U, 1U}) REQUIRE(coordinator.join(peer_info(member), 0).empty());
  coordinator.receive(0, Ready{}, 0);
  coordinator.receive(1, TrainingDone{}, 1);
  CHECK(coordinator.exit_code() == 0);
  CHECK(coordinator.generation() == 0);
  // Worker 2 may know it too, and must be able to leave: it is waited for, but not for ever.
  const auto may_exit = [&](double now) {
    coordinator.tick(now);
    const std::vector<CoordinatorAction> actions = coordinator.take_actions();
    return std::any_of(actions.begin(), actions.end(),
                       [](const auto& it) { return std::holds_alternative<AllAcknowledged>(it); });
  };
  for (const std::uint64_t member : {0U, 1U}) coordinator.receive(member, Goodbye{}, 2);
  CHECK(!may_exit(3));
  SECTION("it comes back") {
    REQUIRE(coordinator.join(peer_info(2), 4).empty());
    coordinator.receive(2, TrainingDone{}, 4);
    coordinator.receive(2, Goodbye{}, 4);
    CHECK(may_exit(5));
  }
  SECTION("it does not") { CHECK(may_exit(2 + SupervisionTimeouts{}.goodbye_timeout)); }
}

TEST_CASE("a member that comes back to a finished job tells the chief that waits for it") {
  SimulatedJob job({.members = 2});
  job.start(0);
  job.coordinator().set_record([] { return true; });
  job.run(1);
  job.start(1);
  job.at(1).member->had_finished();
  check_all_exit_with(job, 2, 0, "", 5);
  CHECK(job.worlds.empty());
}

TEST_CASE("a member that comes back to a finished job waits a moment only for the chief") {
  SimulatedJob job({.members = 2});
  job.start(1);
  job.at(1).member->had_finished();
  job.run(4);
  CHECK_FALSE(job.some_exited());
  job.run(2);
  REQUIRE(job.at(1).exit.has_value());
  CHECK(job.at(1).exit->code == 0);
}

TEST_CASE("a chief that knows that the job has finished tells the members that come back") {
  Coordinator coordinator({"worker 0", "worker 1"}, "run", {}, 0);
  REQUIRE(coordinator.join(peer_info(0), 0).empty());
  coordinator.finish_at_once(0);
  REQUIRE(coordinator.join(peer_info(1), 1).empty());
  coordinator.receive(1, Ready{}, 1);
  const std::vector<Message> said = messages_to(coordinator, 1);
  REQUIRE(!said.empty());
  REQUIRE(std::holds_alternative<JobResult>(said.front()));
  CHECK(std::get<JobResult>(said.front()).code == 0);
  CHECK(coordinator.generation() == 0);
}

TEST_CASE("a member's record ends the job only if the chief's directory has it too") {
  const bool is_recorded = GENERATE(true, false);
  const bool can_look = is_recorded || GENERATE(true, false);
  Coordinator coordinator({"worker 0", "worker 1"}, "run", {}, 0);
  if (can_look) coordinator.set_record([is_recorded] { return is_recorded; });
  for (std::size_t member = 0; member < 2; ++member) REQUIRE(coordinator.join(peer_info(member), 0).empty());
  coordinator.receive(0, Ready{}, 1);
  coordinator.receive(1, TrainingDone{.is_record = true}, 1);
  CHECK(coordinator.exit_code() == (is_recorded ? std::optional(0) : std::nullopt));
  CHECK(coordinator.is_running() != is_recorded);  // it trains
}

TEST_CASE("a member that proved nothing cannot end a job as a success") {
  Coordinator coordinator({"worker 0", "worker 1"}, "run", {}, 0, false);
  for (std::size_t member = 0; member < 2; ++member) REQUIRE(coordinator.join(peer_info(member), 0).empty());
  coordinator.receive(0, Ready{}, 1);
  coordinator.receive(1, TrainingDone{}, 1);
  CHECK_FALSE(coordinator.exit_code());
  CHECK(coordinator.is_running());  // it trains on
}
