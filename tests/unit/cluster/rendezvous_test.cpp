// The rendezvous on the loopback interface: launchers connect, and connections are lost.
#include "cluster/rendezvous/rendezvous.hpp"

#include "core/clock.hpp"
#include "launcher_group.hpp"
#include "support/catch.hpp"
#include "support/sockets.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("launchers meet in any order, train and exit") {
  for (const std::string token : {"", "a long and secret token"}) {
    RendezvousOptions options = quick();
    options.token = JobToken(token);
    options.host = "each on its own";
    LauncherGroup group(cluster(3, free_port(), token.empty() ? "localhost" : "127.0.0.1"), options);
    group.start(2);
    group.run(1.3);
    CHECK(group.at(2).logged("for the chief, worker 0 (" + std::string(token.empty() ? "localhost" : "127.0.0.1")));
    CHECK(group.at(2).logged("connection refused"));
    group.start(0);
    group.start(1);
    REQUIRE(group.run_until([&]() { return group.all_train() && group.at(2).fences == 1; }, 10));
    CHECK(group.at(0).logged("no job token is set") == token.empty());
    CHECK(group.at(2).rendezvous.own_address().find_first_not_of(":0123456789.") == std::string::npos);
    for (const auto& launcher : group.launchers) {
      CHECK(launcher->rendezvous.member().placement().nodes.size() == 3);
      launcher->end_training();
    }
    REQUIRE(group.run_until([&]() { return group.all_exited(); }, 5));
    for (const auto& launcher : group.launchers) CHECK(launcher->exit->code == 0);
  }
}

TEST_CASE("missing workers are named with the reason") {
  ClusterSpec spec = cluster(4, free_port());
  spec.tasks[1].address = {"does-not-exist.invalid", 5000};
  spec.tasks[2].address.port = free_port();
  const Socket other_program = listen_on(0);
  spec.tasks[3].address.port = port_of(other_program);
  LauncherGroup group(spec, quick());
  ForklessLauncher& chief = group.start(0);
  const auto knows = [&]() {
    return (chief.logged("worker 1 (its name does not resolve)") ||
            chief.logged("worker 1 (the name service does not")) &&
           chief.logged("worker 2 (connection refused: no launcher runs there yet)") &&
           chief.logged("worker 3 (its port accepts connections, but it has not joined)");
  };
  CHECK(group.run_until(knows, 15));
}

TEST_CASE("an exited launcher is lost at once, a hung one after its silence, and both may rejoin") {
  LauncherGroup group(cluster(3, free_port()), quick());
  group.start_all();
  REQUIRE(group.run_until([&]() { return group.all_train(); }, 10));
  group.launchers[1].reset();
  REQUIRE(group.run_until([&]() { return group.at(2).logged("worker 1 (rank 1): lost: "); }, 5));
  CHECK_FALSE(group.at(2).logged("no heartbeat"));
  group.start(1);
  REQUIRE(group.run_until([&]() { return group.all_train(); }, 5));
  CHECK(group.at(0).rendezvous.member().placement().generation == 2);

  std::unique_ptr<ForklessLauncher> hangs = std::move(group.launchers[2]);  // its loop does not run anymore
  REQUIRE(group.run_until([&]() { return group.at(1).logged("worker 2 (rank 2): lost: no heartbeat"); }, 5));
  group.launchers[2] = std::move(hangs);
  REQUIRE(group.run_until(
      [&]() { return group.at(2).rendezvous.member().placement().generation == 3 && group.all_train(); }, 5));
  CHECK(group.at(2).logged("lost the chief"));
}

TEST_CASE("workers wait for a dead chief and continue with its successor") {
  LauncherGroup group(cluster(3, free_port()), quick());
  group.start_all();
  REQUIRE(group.run_until([&]() { return group.all_train(); }, 10));
  const std::string nspace = group.at(1).rendezvous.member().placement().nspace;
  group.launchers[0].reset();
  REQUIRE(group.run_until([&]() { return group.at(1).trainers == 0 && group.at(2).trainers == 0; }, 5));
  CHECK(group.at(1).logged("lost the chief, worker 0"));
  group.run(1.2);
  CHECK(group.at(2).logged("connection refused"));
  group.start(0);
  REQUIRE(group.run_until([&]() { return group.all_train(); }, 5));
  CHECK(group.at(1).rendezvous.member().placement().nspace != nspace);
}

TEST_CASE("a fatal error ends all launchers with its code") {
  LauncherGroup group(cluster(3, free_port()), quick());
  group.start_all();
  REQUIRE(group.run_until([&]() { return group.all_train(); }, 10));
  group.at(2).rendezvous.member().trainer_exited({.rank = 2, .code = 65});
  REQUIRE(group.run_until([&]() { return group.all_exited(); }, 3));
  for (const auto& launcher : group.launchers) {
    CHECK(launcher->exit->code == 65);
    CHECK(launcher->exit->message.find("worker 2 (rank 2)") == 0);
  }
}

TEST_CASE("the chief stays until all members have confirmed the job result") {
  RendezvousOptions options = quick();
  options.timeouts.goodbye_timeout = 20;
  options.timeouts.heartbeat_timeout = 20;
  LauncherGroup group(cluster(2, free_port()), options);
  group.start_all();
  REQUIRE(group.run_until([&]() { return group.all_train(); }, 10));
  group.at(1).end_training();
  group.run(0.2);
  group.at(0).end_training();
  std::unique_ptr<ForklessLauncher> slow = std::move(group.launchers[1]);  // its loop does not run for a while
  group.run(0.5);
  CHECK_FALSE(group.at(0).exit);
  group.launchers[1] = std::move(slow);
  REQUIRE(group.run_until([&]() { return group.all_exited(); }, 5));
  CHECK(group.at(1).exit->code == 0);
}

TEST_CASE("the chief stays for a killed worker and sends its successor the job result") {
  RendezvousOptions options = quick();
  options.timeouts.goodbye_timeout = 20;
  LauncherGroup group(cluster(2, free_port()), options);
  group.start_all();
  REQUIRE(group.run_until([&]() { return group.all_train(); }, 10));
  group.at(1).ends_generations = false;
  group.at(0).end_training();
  group.at(1).end_training();
  group.run(0.3);  // all members have received the job result
  CHECK_FALSE(group.at(0).exit);
  group.launchers[1].reset();
  group.run(0.3);
  CHECK_FALSE(group.at(0).exit);
  group.start(1);
  REQUIRE(group.run_until([&]() { return group.all_exited(); }, 5));
  CHECK(group.at(0).exit->code == 0);
  CHECK(group.at(1).exit->code == 0);
}

namespace {

/// Runs the chief in this process and the other launchers in a child process.
void check_thousand(std::size_t workers) {
  allow_many_files();
  const std::uint16_t port = free_port();
  RendezvousOptions options;
  options.token = JobToken("secret");
  options.host = "each on its own";
  const double memory = resident_megabytes();
  const double cpu_before = thread_cpu_seconds();
  ForkedWork others([&]() {
    LauncherGroup group(cluster(workers, port), options);
    for (std::size_t rank = 1; rank < workers; ++rank) group.start(rank);
    if (!group.run_until([&]() { return group.all_train() && group.at(workers - 1).fences == 1; }, 60)) _exit(1);
    for (std::size_t rank = 1; rank < workers; ++rank) group.at(rank).end_training();
    if (!group.run_until([&]() { return group.all_exited(); }, 60)) _exit(2);
  });
  LauncherGroup group(cluster(workers, port), options);
  const double began = monotonic_seconds();
  ForklessLauncher& chief = group.start(0);
  double max_added = 0;  // VmHWM would include the other tests of this process
  const auto watch_memory = [&](bool value) {
    max_added = std::max(max_added, resident_megabytes() - memory);
    return value;
  };
  REQUIRE(group.run_until([&]() { return watch_memory(chief.trainers == 1); }, 60));
  const double formed = monotonic_seconds() - began;
  REQUIRE(group.run_until([&]() { return watch_memory(chief.fences == 1); }, 60));
  const double fenced = monotonic_seconds() - began;
  chief.end_training();
  REQUIRE(group.run_until([&]() { return watch_memory(chief.exit.has_value()); }, 60));
  CHECK(chief.exit->code == 0);
  std::optional<bool> ended;
  REQUIRE(group.run_until([&]() { return (ended = others.ended()).has_value(); }, 60));
  CHECK(ended == true);
  std::cout << workers << " launchers over TCP: world after " << formed << " s, first fence after " << fenced
            << " s, job over after " << monotonic_seconds() - began << " s; at most " << max_added
            << " MB more for the chief\n";
  CHECK(thread_cpu_seconds() - cpu_before < 5);
  CHECK(max_added < 150);
}

}  // namespace

TEST_CASE("two hundred launchers form a world over TCP") { check_thousand(200); }

TEST_CASE("a thousand launchers form a world over TCP", "[.][stress]") { check_thousand(1000); }
