// The start of a generation: for whom the others wait, and when a new generation is tried.
#include "cluster/rendezvous/coordinator.hpp"
#include "simulated_job.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

/// A coordinator of three members on as many hosts, in its first generation.
struct Starting {
  Coordinator coordinator;
  double now = 0;
  std::map<std::size_t, double> silent_since;

  explicit Starting(const SupervisionTimeouts& timeouts)
      : coordinator({"worker 0", "worker 1", "worker 2"}, "run", timeouts, 0) {
    for (std::size_t member = 0; member < 3; ++member) {
      PeerInfo who = peer_info(member);
      who.host = "host " + std::to_string(member);
      REQUIRE(coordinator.join(who, now).empty());
      coordinator.receive(member, Ready{}, now);
    }
    REQUIRE(coordinator.is_running());
    (void)coordinator.take_actions();
  }

  void report(std::size_t rank, Activity activity) {
    coordinator.receive(rank, Progress{coordinator.generation(), rank, activity, 0}, now);
  }
  /// Its launcher reports twice a second for how long the trainer has been silent.
  void stay_silent(std::size_t rank) { silent_since[rank] = now; }
  void reach_fence(std::size_t rank) { coordinator.receive(rank, Fence{1, 0, "x"}, now); }

  void end(std::size_t rank, std::uint64_t code, std::uint64_t signal = 0, const std::string& out_of_memory = "",
           const std::string& error = "") {
    coordinator.receive(rank, TrainerExited{coordinator.generation(), rank, code, signal, out_of_memory, error}, now);
  }
  void become_ready() {
    for (std::size_t member = 0; member < 3; ++member) coordinator.receive(member, Ready{}, now);
  }

  /// What the coordinator sends to member 0 meanwhile: the texts of notices and ends, "stacks" for PrintStacks.
  std::vector<std::string> run(double seconds) {
    std::vector<std::string> said;
    for (const double end = now + seconds; now < end; now += 0.5) {
      for (std::size_t member = 0; member < 3; ++member) coordinator.receive(member, Heartbeat{}, now);
      for (const auto& [rank, since] : silent_since) {
        Progress report{coordinator.generation(), rank, Activity::busy, 0};
        report.silent_seconds = now - since;
        coordinator.receive(rank, report, now);
      }
      coordinator.tick(now);
      for (const Message& message : messages_to(coordinator, 0)) {
        if (const auto* notice = std::get_if<Notice>(&message)) said.push_back(notice->text);
        if (const auto* ends = std::get_if<GenerationEnds>(&message)) said.push_back(ends->reason);
        if (std::holds_alternative<PrintStacks>(message)) said.emplace_back("stacks");
      }
    }
    return said;
  }
};

const SupervisionTimeouts timeouts{.report_interval = 10, .start_timeout = 60, .stacks_after = 30};

}  // namespace

TEST_CASE("a start names the trainer that has not come, and is given up after --start-timeout") {
  Starting job(timeouts);
  job.report(0, Activity::starting);
  job.report(1, Activity::starting);
  CHECK(job.run(9).empty());
  const std::vector<std::string> said = job.run(56);
  REQUIRE(said.size() == 9);  // every 10 s, the stacks with a sentence, and the end
  CHECK(said[0] ==
        "MPI has not started after 10 s: still waiting for worker 2 (rank 2), whose trainer has not reported yet");
  CHECK(std::count(said.begin(), said.end(), "stacks") == 1);
  CHECK(said.back() ==
        "generation 1 ended: worker 2 (rank 2): MPI did not start within 60 s (--start-timeout); the ranks waited for "
        "worker 2 (rank 2), whose trainer has not reported yet; restart 1 of at most 10 without progress");
}

TEST_CASE("of ranks in MPI_Init, the one that has not come to the fence is waited for") {
  Starting job(timeouts);
  for (std::size_t rank = 0; rank < 3; ++rank) job.report(rank, Activity::starting);
  job.reach_fence(0);
  job.reach_fence(2);
  const std::vector<std::string> said = job.run(11);
  REQUIRE(said.size() == 1);
  CHECK(said[0] == "MPI has not started after 10 s: still waiting for worker 1 (rank 1)");
}

TEST_CASE("a start that is over is not timed") {
  Starting job(timeouts);
  for (std::size_t rank = 0; rank < 3; ++rank) job.report(rank, Activity::starting);
  for (std::size_t rank = 0; rank < 3; ++rank) job.report(rank, Activity::busy);
  CHECK(job.run(100).empty());
}

TEST_CASE("a program that never reports may start as slowly as it wants") {
  Starting job(timeouts);
  CHECK(job.run(1000).empty());
}

TEST_CASE("ranks that wait for another before the first step print their stacks once") {
  Starting job(timeouts);
  for (std::size_t rank = 0; rank < 3; ++rank) job.report(rank, Activity::busy);
  job.report(1, Activity::waiting);
  CHECK(job.run(29).empty());
  CHECK(job.run(30) ==
        std::vector<std::string>{"training has not begun after 30 s, so the ranks print where they are in the code",
                                 "stacks"});
}

TEST_CASE("a rank that falls silent before the first step while others wait for it is given up") {
  Starting job(timeouts);
  const auto restart = [&] {
    for (std::size_t rank = 0; rank < 3; ++rank) job.report(rank, Activity::busy);
    job.report(1, Activity::waiting);
    job.report(2, Activity::waiting);
    job.stay_silent(0);
  };
  restart();
  std::vector<std::string> said = job.run(60.5);
  CHECK(said.size() == 2);  // the stacks with a sentence
  said = job.run(0.5);
  REQUIRE(said.size() == 1);
  CHECK(said[0] ==
        "generation 1 ended: worker 0 (rank 0): training did not begin within 60 s (--start-timeout): the others have "
        "waited for it for 60 s and it has not reported for 60 s; restart 1 of at most 10 without progress");
  job.silent_since.clear();
  job.become_ready();
  restart();  // it may be slow, not stuck
  CHECK(job.run(120).size() == 2);
  said = job.run(1);
  REQUIRE(said.size() == 1);
  CHECK(said[0].find("within 120 s (--start-timeout, doubled with each restart)") != std::string::npos);
}

TEST_CASE("ranks that all wait for each other before the first step are given up") {
  Starting job(timeouts);
  for (const Activity activity : {Activity::busy, Activity::waiting}) {
    for (std::size_t rank = 0; rank < 3; ++rank) job.report(rank, activity);
  }
  const std::vector<std::string> said = job.run(61);
  REQUIRE_FALSE(said.empty());
  CHECK(said.back().find("all ranks have been waiting for each other for 60 s") != std::string::npos);
}

TEST_CASE("a rank that reports while it loads, or for which nobody waits, is not given up") {
  Starting job(timeouts);
  for (std::size_t rank = 0; rank < 3; ++rank) job.report(rank, Activity::busy);
  for (std::size_t rank = 0; rank < 3; ++rank) job.stay_silent(rank);
  CHECK(job.run(200).empty());
  job.silent_since.clear();
  job.report(1, Activity::waiting);
  for (int i = 0; i < 20; ++i) {
    job.report(0, Activity::busy);
    job.report(2, Activity::busy);
    for (const std::string& text : job.run(10)) CHECK(text.find("ended") == std::string::npos);
  }
}

TEST_CASE("trainers that die twice in the same way while they join the world end the job") {
  Starting job(timeouts);
  job.report(1, Activity::starting);
  job.end(1, 1);
  CHECK_FALSE(job.coordinator.exit_code());
  job.become_ready();
  REQUIRE(job.coordinator.is_running());
  job.report(2, Activity::starting);
  job.end(2, 1);
  CHECK(job.coordinator.exit_code() == 70);
}

TEST_CASE("deaths that differ, kills and deaths after the start are retried") {
  Starting job(timeouts);
  const auto restart = [&](Activity activity, std::uint64_t code, std::uint64_t signal) {
    job.report(1, activity);
    job.end(1, code, signal);
    CHECK_FALSE(job.coordinator.exit_code());
    job.become_ready();
    REQUIRE(job.coordinator.is_running());
  };
  restart(Activity::starting, 1, 0);
  restart(Activity::starting, 0, 11);
  restart(Activity::starting, 0, 9);
  restart(Activity::starting, 0, 9);
  restart(Activity::busy, 1, 0);
  restart(Activity::busy, 1, 0);
}

TEST_CASE("a trainer that is killed for memory twice without progress ends the job and says so") {
  Starting job(timeouts);
  const std::string cause =
      "out of memory: the limit of this container is 64 MiB, its peak was 64 MiB; raise memory_limit";
  job.report(1, Activity::busy);
  job.end(1, 0, 9, cause);
  const std::vector<std::string> said = job.run(0.5);
  REQUIRE(said.size() == 1);
  CHECK(said[0] == "generation 1 ended: worker 1 (rank 1): its trainer was killed: " + cause +
                       "; restart 1 of at most 10 without progress");
  job.become_ready();
  job.coordinator.receive(1, Progress{2, 1, Activity::training, 7}, job.now);  // this one came further
  job.end(1, 0, 9, cause);
  CHECK_FALSE(job.coordinator.exit_code());
  job.become_ready();
  job.end(1, 0, 9, cause);
  CHECK(job.coordinator.exit_code() == 70);
}

TEST_CASE("a program that fails twice with the same words and without progress ends the job") {
  Starting job(timeouts);
  const auto fail = [&job](std::size_t rank, const std::string& error) {
    job.report(rank, Activity::busy);
    job.end(rank, 70, 0, "", error);
  };
  for (const std::string error : {"RuntimeError: no such column", "RuntimeError: out of luck", ""}) {
    fail(1, error);
    CHECK_FALSE(job.coordinator.exit_code());
    job.become_ready();
  }
  fail(2, "");
  CHECK_FALSE(job.coordinator.exit_code());
  job.become_ready();
  fail(0, "RuntimeError: no such column");
  job.become_ready();
  fail(2, "RuntimeError: no such column");  // whichever rank is the first
  CHECK(job.coordinator.exit_code() == 70);
}

TEST_CASE("after exit code 74 the next generations begin after growing pauses") {
  const Activity activity = GENERATE(Activity::busy, Activity::starting);
  Starting job(timeouts);
  for (const double pause : {1, 2, 4, 8, 16, 30}) {
    job.report(1, activity);
    job.end(1, 74);
    job.become_ready();
    (void)job.run(pause - 0.5);
    CHECK_FALSE(job.coordinator.is_running());
    (void)job.run(1.5);
    CHECK(job.coordinator.is_running());
  }
}
