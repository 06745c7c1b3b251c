// The rendezvous on the loopback interface: launchers that find each other, and lose each other.
#include "cluster/rendezvous.hpp"

#include "core/clock.hpp"
#include "launcher_party.hpp"
#include "support/catch.hpp"

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

TEST_CASE("launchers find each other in any order, train, and end") {
  for (const std::string token : {"", "a long and secret token"}) {
    RendezvousOptions options = quick();
    options.token = JobToken(token);
    options.host = "each on its own";
    Party party(cluster(3, free_port(), token.empty() ? "localhost" : "127.0.0.1"), options);
    party.start(2);
    party.run(1.3);
    CHECK(party.at(2).logged("for the chief, worker 0 (" + std::string(token.empty() ? "localhost" : "127.0.0.1")));
    CHECK(party.at(2).logged("it refuses the connection"));
    party.start(0);
    party.start(1);
    REQUIRE(party.run_until([&]() { return party.all_train() && party.at(2).fences == 1; }, 10));
    CHECK(party.at(0).logged("there is no job token") == token.empty());
    CHECK(party.at(2).rendezvous.own_address().find_first_not_of(":0123456789.") == std::string::npos);
    for (const auto& launcher : party.launchers) {
      CHECK(launcher->rendezvous.member().map().nodes.size() == 3);
      launcher->end_training();
    }
    REQUIRE(party.run_until([&]() { return party.all_exited(); }, 5));
    for (const auto& launcher : party.launchers) CHECK(launcher->exit->code == 0);
  }
}

TEST_CASE("those missing are named with what is wrong with them") {
  ClusterSpec spec = cluster(4, free_port());
  spec.tasks[1].address = {"does-not-exist.invalid", 5000};
  spec.tasks[2].address.port = free_port();
  const Socket other_program = listen_on(0);
  spec.tasks[3].address.port = port_of(other_program);
  Party party(spec, quick());
  PretendedLauncher& chief = party.start(0);
  const auto knows = [&]() {
    return (chief.logged("worker 1 (its name does not resolve)") ||
            chief.logged("worker 1 (the name service does not")) &&
           chief.logged("worker 2 (its host refuses the connection: no launcher runs there yet)") &&
           chief.logged("worker 3 (its host answers on that port, but it has not joined)");
  };
  CHECK(party.run_until(knows, 15));
}

TEST_CASE("a launcher that ends is lost at once, one that hangs when it is silent, and both may come back") {
  Party party(cluster(3, free_port()), quick());
  party.start_all();
  REQUIRE(party.run_until([&]() { return party.all_train(); }, 10));
  double began = monotonic_seconds();
  party.launchers[1].reset();
  REQUIRE(party.run_until([&]() { return party.at(2).logged("worker 1 (rank 1): lost: "); }, 5));
  CHECK(monotonic_seconds() - began < 1);
  party.start(1);
  REQUIRE(party.run_until([&]() { return party.all_train(); }, 5));
  CHECK(party.at(0).rendezvous.member().map().generation == 2);

  began = monotonic_seconds();
  std::unique_ptr<PretendedLauncher> hangs = std::move(party.launchers[2]);  // nobody calls its loop
  REQUIRE(party.run_until([&]() { return party.at(1).logged("worker 2 (rank 2): lost: no sign of life"); }, 5));
  CHECK(monotonic_seconds() - began < 2.5);
  party.launchers[2] = std::move(hangs);
  REQUIRE(
      party.run_until([&]() { return party.at(2).rendezvous.member().map().generation == 3 && party.all_train(); }, 5));
  CHECK(party.at(2).logged("lost the chief"));
}

TEST_CASE("when the chief's launcher dies the others wait, and go on with its successor") {
  Party party(cluster(3, free_port()), quick());
  party.start_all();
  REQUIRE(party.run_until([&]() { return party.all_train(); }, 10));
  const std::string nspace = party.at(1).rendezvous.member().map().nspace;
  party.launchers[0].reset();
  REQUIRE(party.run_until([&]() { return party.at(1).trainers == 0 && party.at(2).trainers == 0; }, 5));
  CHECK(party.at(1).logged("lost the chief, worker 0"));
  party.run(1.2);
  CHECK(party.at(2).logged("it refuses the connection"));
  party.start(0);
  REQUIRE(party.run_until([&]() { return party.all_train(); }, 5));
  CHECK(party.at(1).rendezvous.member().map().nspace != nspace);
}

TEST_CASE("a fatal error ends all launchers with its code") {
  Party party(cluster(3, free_port()), quick());
  party.start_all();
  REQUIRE(party.run_until([&]() { return party.all_train(); }, 10));
  party.at(2).rendezvous.member().child_ended(2, 65, 0);
  REQUIRE(party.run_until([&]() { return party.all_exited(); }, 3));
  for (const auto& launcher : party.launchers) {
    CHECK(launcher->exit->code == 65);
    CHECK(launcher->exit->message.find("worker 2 (rank 2)") == 0);
  }
}

TEST_CASE("the chief stays until all have heard that the job is over") {
  RendezvousOptions options = quick();
  options.limits.farewell = 20;
  options.limits.silence = 20;
  Party party(cluster(2, free_port()), options);
  party.start_all();
  REQUIRE(party.run_until([&]() { return party.all_train(); }, 10));
  party.at(1).end_training();
  party.run(0.2);
  party.at(0).end_training();
  std::unique_ptr<PretendedLauncher> slow = std::move(party.launchers[1]);  // does not listen for a while
  party.run(0.5);
  CHECK_FALSE(party.at(0).exit);
  party.launchers[1] = std::move(slow);
  REQUIRE(party.run_until([&]() { return party.all_exited(); }, 5));
  CHECK(party.at(1).exit->code == 0);
}

TEST_CASE("the chief stays for a worker that was killed before it could end, and tells its successor") {
  RendezvousOptions options = quick();
  options.limits.farewell = 20;
  Party party(cluster(2, free_port()), options);
  party.start_all();
  REQUIRE(party.run_until([&]() { return party.all_train(); }, 10));
  party.at(1).ends_generations = false;
  party.at(0).end_training();
  party.at(1).end_training();
  party.run(0.3);  // all have heard
  CHECK_FALSE(party.at(0).exit);
  party.launchers[1].reset();
  party.run(0.3);
  CHECK_FALSE(party.at(0).exit);
  party.start(1);
  REQUIRE(party.run_until([&]() { return party.all_exited(); }, 5));
  CHECK(party.at(0).exit->code == 0);
  CHECK(party.at(1).exit->code == 0);
}

namespace {

/// The chief of `workers` launchers here, the others in a process of their own.
void check_thousand(std::size_t workers) {
  allow_many_files();
  const std::uint16_t port = free_port();
  RendezvousOptions options;
  options.token = JobToken("secret");
  options.host = "each on its own";
  const double memory = resident_megabytes();
  ForkedWork others([&]() {
    Party party(cluster(workers, port), options);
    for (std::size_t rank = 1; rank < workers; ++rank) party.start(rank);
    if (!party.run_until([&]() { return party.all_train() && party.at(workers - 1).fences == 1; }, 60)) _exit(1);
    for (std::size_t rank = 1; rank < workers; ++rank) party.at(rank).end_training();
    if (!party.run_until([&]() { return party.all_exited(); }, 60)) _exit(2);
  });
  Party party(cluster(workers, port), options);
  const double began = monotonic_seconds();
  PretendedLauncher& chief = party.start(0);
  double most = 0;  // (the system's own count knows what other tests of this process took)
  const auto watch_memory = [&](bool value) {
    most = std::max(most, resident_megabytes() - memory);
    return value;
  };
  REQUIRE(party.run_until([&]() { return watch_memory(chief.trainers == 1); }, 60));
  const double formed = monotonic_seconds() - began;
  REQUIRE(party.run_until([&]() { return watch_memory(chief.fences == 1); }, 60));
  const double fenced = monotonic_seconds() - began;
  chief.end_training();
  REQUIRE(party.run_until([&]() { return watch_memory(chief.exit.has_value()); }, 60));
  CHECK(chief.exit->code == 0);
  std::optional<bool> ended;
  REQUIRE(party.run_until([&]() { return (ended = others.ended()).has_value(); }, 60));
  CHECK(ended == true);
  std::cout << workers << " launchers over TCP: world after " << formed << " s, first fence after " << fenced
            << " s, job over after " << monotonic_seconds() - began << " s; at most " << most
            << " MB more for the chief\n";
  CHECK(formed < 5);
  CHECK(most < 150);
}

}  // namespace

TEST_CASE("two hundred launchers meet over TCP") { check_thousand(200); }

TEST_CASE("a thousand launchers meet over TCP", "[.][stress]") { check_thousand(1000); }
