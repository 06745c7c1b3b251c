// A job of simulated launchers: how generations form and end, what is noticed when, and what is decided.
#include "cluster/coordinator.hpp"

#include "resident_memory.hpp"
#include "simulated_job.hpp"

#include "core/clock.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <set>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

bool was_hung_up(Coordinator& coordinator, std::size_t member) {
  for (const CoordinatorAction& action : coordinator.take_actions()) {
    const auto* hang_up = std::get_if<HangUp>(&action);
    if (hang_up != nullptr && hang_up->member == member) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a job forms its world whoever comes first, trains, and ends with 0") {
  SimulatedJob job({.members = 3, .steps = 50});
  job.start(2);
  job.run(30);
  CHECK(job.logged(2, "waiting since 10 s for the chief, worker 0 (a:1): it refuses the connection"));
  CHECK(job.count_logged(2, "waiting since") == 2);
  job.start(0);
  job.run(25);
  for (const std::size_t number : {0U, 2U}) {
    CHECK(job.logged(number, "waiting since 10 s for worker 1 (it has not come yet)"));
    CHECK(job.logged(number, "waiting since 20 s"));
  }
  CHECK(job.trainers() == 0);
  job.start(1);
  REQUIRE(job.run_until([&]() { return job.all_train(); }, 1));
  CHECK(job.coordinator().generation() == 1);
  for (std::size_t number = 0; number < 3; ++number) {
    CHECK(job.at(number).fences == 2);
    CHECK(job.at(number).last_blobs == std::vector<std::string>{"blob of node 0", "blob of node 1", "blob of node 2"});
  }
  CHECK(job.coordinator().missing().empty());
  check_all_exit_with(job, 3, 0, "");
  CHECK(job.coordinator().verdict() == 0);
}

TEST_CASE("one launcher of a host serves all ranks there, and the others get their environments from it") {
  SimulatedJob job({.members = 4, .ranks_each = 2, .hosts = 2, .steps = 20});
  job.start_all();
  REQUIRE(job.run_until([&]() { return job.all_train(); }, 5));
  const WorldMap& map = job.at(3).member->map();
  REQUIRE(map.ranks.size() == 8);
  CHECK(map.nodes == std::vector<Node>{{"node-0", 0, 8}, {"node-1", 1, 8}});
  CHECK(map.ranks[0] == RankPlace{0, 0, 0});
  CHECK(map.ranks[3] == RankPlace{1, 1, 1});
  CHECK(map.ranks[4] == RankPlace{2, 0, 2});
  CHECK(map.ranks[7] == RankPlace{3, 1, 3});
  CHECK(map.ranks_of_member(2) == std::vector<std::uint64_t>{4, 5});
  CHECK(map.ranks_of_node(1) == std::vector<std::uint64_t>{2, 3, 6, 7});
  CHECK(map.server_of(6) == 1);
  CHECK_FALSE(map.node_served_by(2));
  CHECK(job.at(1).fences == 2);
  CHECK(job.at(2).fences == 0);
  for (std::size_t number = 0; number < 4; ++number) CHECK(job.at(number).starts == 2);
  job.end_trainer(6, 0, 11);
  REQUIRE(job.run_until([&]() { return job.coordinator().generation() == 2 && job.all_train(); }, 5));
  CHECK(job.logged(0, "generation 1 has ended: worker 3 (rank 6): its trainer was killed by signal 11"));
  check_all_exit_with(job, 4, 0, "");
}

TEST_CASE("nodes with one name get two") {
  const std::vector<Introduction> members{{0, 1, "boot 1", "node", "", 1}, {1, 2, "boot 2", "node", "", 1}};
  const WorldMap map = map_world(3, "space", members);
  REQUIRE(map.nodes.size() == 2);
  CHECK(map.nodes[0].host_name != map.nodes[1].host_name);
  CHECK(map.generation == 3);
  CHECK(map.nspace == "space");
}

TEST_CASE("a killed trainer, a dead launcher, a silent one and a stuck step all lead to the next generation") {
  const std::string what = GENERATE("trainer", "launcher", "silent launcher", "stopped trainer", "stopped, no waits");
  CAPTURE(what);
  SimulatedJob job({.members = 3});
  job.start_all();
  job.run(5);
  REQUIRE(job.all_train());
  const double began = job.now;
  const std::uint64_t step = job.step_now;
  std::string reason;
  if (what == "trainer") {
    job.end_trainer(1, 0, 9);
    reason = "worker 1 (rank 1): its trainer was killed by signal 9 (Killed)";
  } else if (what == "launcher") {
    job.kill(1);
    reason = "worker 1 (rank 1): lost: the connection broke";
  } else if (what == "silent launcher") {
    job.kill(1, false);
    reason = "worker 1 (rank 1): lost: no sign of life for 4 s";
  } else {
    for (std::size_t number = 0; number < 3; ++number) job.at(number).reports_waits = what == "stopped trainer";
    job.trainer(1).is_stopped = true;
    reason = "no step for 4.";
  }
  const auto all_know = [&]() { return job.logged(0, "generation 1 has") && job.logged(2, "generation 1 has"); };
  REQUIRE(job.run_until(all_know, 5.0));
  CHECK(job.now - began <= 5.0);
  for (const std::size_t number : {0U, 2U}) {
    CHECK(job.count_logged(number, "generation 1 has ended: ") == 1);
    CHECK(job.logged(number, reason));
    CHECK(job.logged(number, "restart 1 of at most 10 without progress"));
  }
  if (what == "stopped trainer") CHECK(job.logged(0, "worker 1 (rank 1): no step for"));
  if (!job.at(1).member) {
    job.run(12);
    CHECK(job.coordinator().missing() == std::vector<std::size_t>{1});
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

TEST_CASE("a rank that never begins to train is noticed") {
  SimulatedJob job({.members = 2, .limits = {.busy = 20}});
  job.start(0);
  job.start(1);
  job.at(1).starts_stopped = true;
  job.run(19);
  CHECK(job.coordinator().generation() == 1);
  job.run(4);
  CHECK(job.logged(0, "worker 1 (rank 1): it did not begin to train within 20."));
}

TEST_CASE("errors that a restart cannot mend end all workers at once with their code") {
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

TEST_CASE("an error that no restart mends counts even where its generation has ended before it was known") {
  SimulatedJob job({.members = 3});
  job.start_all();
  job.run(3);
  for (std::size_t number = 0; number < 3; ++number) job.at(number).ending_takes = 1;
  job.end_trainer(1, 1);
  job.end_trainer(2, 65);
  check_all_exit_with(job, 3, 65, "worker 2 (rank 2)");
}

TEST_CASE("generations without progress are counted, and progress resets the count") {
  SimulatedJob job({.members = 2, .limits = {.max_restarts = 3}});
  job.start_all();
  for (int i = 0; i < 8; ++i) {  // each gets further than the one before
    REQUIRE(job.run_until([&]() { return job.all_train() && job.step_now >= 20U * (i + 1); }, 20));
    job.end_trainer(1, 70);
    CHECK(job.count_logged(0, "restart 1 of at most 3") == static_cast<std::size_t>(i) + 1);
  }
  job.saved_step = 0;  // the backups are lost: all that follows was there before
  for (int i = 0; i < 3; ++i) {
    REQUIRE(job.run_until([&]() { return job.all_train(); }, 5));
    CHECK_FALSE(job.at(0).exit);
    job.run(1);
    job.end_trainer(1, 70);
  }
  check_all_exit_with(job, 2, 70, "that is enough after 3 restarts without progress (--max-restarts)");
  CHECK(job.coordinator().generation() == 11);
}

TEST_CASE("without restarts the first failure is the last") {
  SimulatedJob job({.members = 2, .limits = {.max_restarts = 0}});
  job.start_all();
  job.run(2);
  job.kill(1);
  REQUIRE(job.run_until([&]() { return job.at(0).exit.has_value(); }, 10));
  CHECK(job.at(0).exit->code == 75);
  CHECK(job.at(0).exit->message.find("--max-restarts is 0") != std::string::npos);
  job.start(1);  // comes too late, and hears it
  job.run(1);
  CHECK(job.at(1).exit->code == 75);
}

TEST_CASE("whoever does not come in time ends the wait, by name") {
  SimulatedJob job({.members = 4, .limits = {.rendezvous_timeout = 60}});
  job.start(0);
  job.start(3);
  job.coordinator().explain(1, "its name does not resolve");
  job.run(59);
  CHECK(job.logged(3, "worker 1 (its name does not resolve), worker 2 (it has not come yet)"));
  CHECK_FALSE(job.at(3).exit);
  job.run(2);
  for (const std::size_t number : {0U, 3U}) {
    REQUIRE(job.at(number).exit);
    CHECK(job.at(number).exit->code == 75);
    CHECK(job.at(number).exit->message.find("not all workers came within 60 s (worker 1 (its name does not resolve), "
                                            "worker 2 (it has not come yet))") != std::string::npos);
  }
}

TEST_CASE("many missing workers fit a line") {
  SimulatedJob job({.members = 200, .limits = {.rendezvous_timeout = 30}});
  job.start(0);
  job.run(11);
  CHECK(job.logged(0, "worker 8 (it has not come yet) and 191 more"));
}

TEST_CASE("when the chief is lost the others end their trainers and wait for it to come back") {
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
      CHECK(job.logged(number, "generation 1 has ended here; waiting for it to come back"));
    }
    job.run(100);
    job.start(0);
    REQUIRE(job.run_until([&]() { return job.all_train(); }, 5));
    CHECK(job.worlds.front() != job.worlds.back());  // both are generation 1
    CHECK(job.step_now >= 20);
  }
}

TEST_CASE("when the chief stays away the others end with 75") {
  SimulatedJob job({.members = 2, .limits = {.rendezvous_timeout = 30}});
  job.start_all();
  job.run(3);
  job.kill(0);
  REQUIRE(job.run_until([&]() { return job.at(1).exit.has_value(); }, 31));
  CHECK(job.at(1).exit->code == 75);
  CHECK(job.at(1).exit->message.find("the chief, worker 0 (a:1), did not come within 30 s") != std::string::npos);
}

TEST_CASE("a second process of a task is refused while the first lives, and takes its place when it is silent") {
  Coordinator coordinator({"worker 0", "worker 1"}, "run", {}, 0);
  CHECK(coordinator.admit(introduction(0), 0).empty());
  CHECK(coordinator.admit(introduction(1, 7), 0).empty());
  const std::string objection = coordinator.admit(introduction(1, 8), 1);
  CHECK(objection.find("worker 1 is already here, from host node (10.0.0.1)") == 0);
  CHECK_FALSE(was_hung_up(coordinator, 1));
  CHECK(coordinator.admit(introduction(1, 7), 1).empty());  // the same, whose connection broke unnoticed
  coordinator.receive(1, Heartbeat{}, 2);
  CHECK_FALSE(coordinator.admit(introduction(1, 8), 3.5).empty());
  CHECK(coordinator.admit(introduction(1, 8), 4.5).empty());
  CHECK_FALSE(was_hung_up(coordinator, 1));  // its connection is the new one
}

TEST_CASE("what was meant for a process does not reach its successor") {
  Coordinator coordinator({"worker 0", "worker 1"}, "run", {}, 0);
  for (const std::uint64_t member : {0U, 1U}) {
    REQUIRE(coordinator.admit(introduction(member), 0).empty());
    coordinator.receive(member, Ready{}, 0);
  }
  REQUIRE(coordinator.is_running());  // Begin is to be sent
  CHECK(coordinator.admit(introduction(1, 1), 0).empty());
  coordinator.receive(1, Farewell{}, 0);  // nonsense
  CHECK(coordinator.admit(introduction(1, 2), 0).empty());
  for (const CoordinatorAction& action : coordinator.take_actions()) {
    const auto* post = std::get_if<Post>(&action);
    REQUIRE(post != nullptr);
    CHECK(std::count(post->to.begin(), post->to.end(), 1U) == 0);
  }
}

TEST_CASE("who says what makes no sense is hung up on, and nobody else is harmed") {
  const std::vector<Message> nonsense{Hello{},
                                      Begin{},
                                      Verdict{},
                                      Notice{"x"},
                                      GenerationEnds{},
                                      FenceDone{},
                                      Farewell{},
                                      Ready{},
                                      Fence{1, 5, "out of order"},
                                      Fence{2, 0, "of the future"},
                                      Started{1, 0},
                                      Started{1, 99},
                                      Started{9, 1},
                                      ChildEnded{1, 0, 0, 0},
                                      ChildEnded{1, 1000, 65, 0},
                                      ChildEnded{7, 1, 65, 0},
                                      RankEnvironment{1, 0, {}},
                                      RankEnvironment{1, 12345, {}},
                                      Progress{1, 0, Activity::training, 1, 1, 0, 0}};
  for (const Message& message : nonsense) {
    CAPTURE(name_of(message));
    Coordinator coordinator({"worker 0", "worker 1"}, "run", {}, 0);
    for (const std::uint64_t member : {0U, 1U}) {
      REQUIRE(coordinator.admit(introduction(member), 0).empty());
      coordinator.receive(member, Ready{}, 0);
    }
    REQUIRE(coordinator.is_running());
    (void)coordinator.take_actions();
    coordinator.receive(1, message, 1);
    CHECK(was_hung_up(coordinator, 1));
    CHECK_FALSE(coordinator.is_running());
    CHECK_FALSE(coordinator.verdict());
    CHECK(coordinator.missing() == std::vector<std::size_t>{1});
  }
}

TEST_CASE("what is late, of a generation that has ended, is ignored") {
  Coordinator coordinator({"worker 0", "worker 1"}, "run", {}, 0);
  for (const std::uint64_t member : {0U, 1U}) {
    REQUIRE(coordinator.admit(introduction(member), 0).empty());
    coordinator.receive(member, Ready{}, 0);
  }
  coordinator.receive(0, Fence{1, 0, "half"}, 1);
  coordinator.receive(0, ChildEnded{1, 0, 0, 9}, 1);
  CHECK_FALSE(coordinator.is_running());
  (void)coordinator.take_actions();
  for (const Message& late :
       std::vector<Message>{Fence{1, 0, "other half"}, Started{1, 1}, Progress{1, 1}, ChildEnded{1, 1, 0, 15},
                            Failed{1, "gone"}, RankEnvironment{1, 1, {}}}) {
    coordinator.receive(1, late, 1);
  }
  CHECK(said_to(coordinator, 1).empty());
  for (const std::uint64_t member : {0U, 1U}) coordinator.receive(member, Ready{}, 2);
  CHECK(coordinator.generation() == 2);
  CHECK(said_to(coordinator, 1).size() == 1);
  for (const std::uint64_t member : {0U, 1U}) coordinator.receive(member, Fence{2, 0, "new"}, 3);
  const std::vector<Message> said = said_to(coordinator, 1);
  REQUIRE(said.size() == 1);
  CHECK(std::get<FenceDone>(said[0]).blobs == std::vector<std::string>{"new", "new"});
}

TEST_CASE("a launcher that was stopped itself does not take the others for lost") {
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

TEST_CASE("whatever is killed, cut or frozen at random, the job goes on to its end") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    RandomStream random(seed, RandomPurpose::test, 5);
    SimulatedJob job({.members = 4, .hosts = seed % 3, .limits = {.max_restarts = 100}, .steps = 300, .seed = seed});
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

TEST_CASE("a thousand simulated members form their worlds") {
  SimulatedJob job({.members = 1000, .steps = 20});
  job.start_all();
  REQUIRE(job.run_until([&]() { return job.all_train(); }, 5));
  job.kill(500);
  job.start(500);
  REQUIRE(job.run_until([&]() { return job.coordinator().generation() == 2 && job.all_train(); }, 5));
  REQUIRE(job.run_until([&]() { return job.all_exited(); }, 20));
  CHECK(job.at(999).exit->code == 0);
}

TEST_CASE("a thousand members cost the coordinator little") {
  constexpr std::size_t members = 1000;
  std::vector<std::string> names;
  for (std::size_t member = 0; member < members; ++member) names.push_back("worker " + std::to_string(member));
  const double memory_before = resident_megabytes();
  const double began = monotonic_seconds();
  Coordinator coordinator(names, "run", {}, 0);
  for (std::size_t member = 0; member < members; ++member) {
    REQUIRE(coordinator.admit(introduction(member), 0).empty());
    coordinator.receive(member, Ready{}, 0);
  }
  REQUIRE(coordinator.is_running());
  std::size_t bytes = 0;
  const auto count_bytes = [&]() {
    for (const CoordinatorAction& action : coordinator.take_actions()) {
      bytes += encode(to_frame(std::get<Post>(action).message)).size() * std::get<Post>(action).to.size();
    }
  };
  count_bytes();
  for (std::uint64_t sequence = 0; sequence < 3; ++sequence) {
    for (std::size_t member = 0; member < members; ++member) {
      coordinator.receive(member, Fence{1, sequence, std::string(110, 'x')}, 1);
    }
    count_bytes();
  }
  const double formed = monotonic_seconds() - began;
  double now = 1;
  for (int second = 0; second < 60; ++second, now += 1) {  // of training
    for (std::size_t member = 0; member < members; ++member) {
      coordinator.receive(member, Progress{1, member, Activity::training, static_cast<std::uint64_t>(second)}, now);
      coordinator.receive(member, Heartbeat{}, now);
    }
    for (int i = 0; i < 4; ++i) coordinator.tick(now + 0.25 * i);
    count_bytes();
  }
  const double trained = monotonic_seconds() - began - formed;
  const double memory = resident_megabytes() - memory_before;
  std::cout << "coordinator of 1000 members: rendezvous and three fences " << formed * 1000 << " ms ("
            << static_cast<double>(bytes) / 1e6 << " MB to send), a minute of training " << trained * 1000 << " ms, "
            << memory << " MB\n";
  CHECK(coordinator.is_running());
  CHECK(formed < 2);
  CHECK(memory < 150);
}
