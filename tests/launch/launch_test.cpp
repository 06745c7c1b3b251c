// Worlds without mpirun, with real PMIx servers and real MPI: they form, train, are killed, and form again.
#include "core/clock.hpp"
#include "core/random.hpp"
#include "fake_launchers.hpp"
#include "namespaces.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

const std::string programs = LOCKSTEP_TEST_PROGRAMS;

FakeGeneration on_one_host(std::vector<std::string> command) {
  return {{{0, {0, 1, 2}, "", ""}}, std::move(command), {}};
}

bool succeeded(const FakeLaunchers& world, int rank) {
  const auto status = world.status(rank);
  return status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0;
}

/// Shown when a check fails.
std::string everything(const FakeLaunchers& world) {
  std::string text;
  for (int rank = 0; rank < 3; ++rank) text += "--- rank " + std::to_string(rank) + "\n" + world.output(rank);
  for (const std::string& why : world.lost) text += "--- server lost: " + why + "\n";
  return text;
}

void require_three_summed(FakeLaunchers& world, const std::string& hosts) {
  const bool ended = world.run_until([&] { return world.all_ended(); });
  INFO(everything(world));
  REQUIRE(ended);
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(succeeded(world, rank));
    REQUIRE(world.output(rank).starts_with("rank " + std::to_string(rank) + " of 3 on " + hosts));
    REQUIRE(world.output(rank).ends_with("summed\n"));
  }
  REQUIRE(world.lost.empty());
}

}  // namespace

TEST_CASE("one PMIx server forms a world of three processes and cleans up") {
  std::vector<std::string> directories;
  {
    FakeLaunchers world(on_one_host({programs + "world_probe", "hello"}));
    require_three_summed(world, "1 hosts");
    std::cout << "server ready after " << world.ready_after.at(0) << " s; " << world.output(0);
    directories = world.directories();
    REQUIRE(std::filesystem::exists(directories.at(0)));
  }
  for (const std::string& directory : directories) REQUIRE_FALSE(std::filesystem::exists(directory));
}

TEST_CASE("a model program trains in a world formed by launchers") {
  const auto model = std::filesystem::temp_directory_path() / ("launch_test_model_" + std::to_string(getpid()));
  FakeLaunchers world(on_one_host({programs + "keras_mnist", "--epochs", "1", "--steps-per-epoch", "5", "--model-dir",
                                   model.string(), "--verbose", "2"}));
  const bool ended = world.run_until([&] { return world.all_ended(); });
  INFO(everything(world));
  REQUIRE(ended);
  for (int rank = 0; rank < 3; ++rank) REQUIRE(succeeded(world, rank));
  REQUIRE(world.output(0).find("3 workers") != std::string::npos);
  REQUIRE(world.output(1).empty());
  REQUIRE(std::filesystem::exists(model / "history.json"));
  std::filesystem::remove_all(model);
}

TEST_CASE("MPI_Abort is reported with rank and code") {
  FakeLaunchers world(on_one_host({programs + "world_probe", "abort", "65"}));
  const bool reported = world.run_until([&] { return !world.aborts.empty() && world.status(1); });
  INFO(everything(world));
  REQUIRE(reported);
  REQUIRE(world.aborts.at(0).rank == 1);
  REQUIRE(world.aborts.at(0).status == 65);
  REQUIRE(WEXITSTATUS(*world.status(1)) == 65);
}

TEST_CASE("ten consecutive generations survive kills at random moments") {
  RandomStream random(20261121, RandomPurpose::test, 0);
  for (int generation = 0; generation < 10; ++generation) {
    FakeLaunchers world(on_one_host({programs + "world_probe", "spin"}));
    const double moment = 0.05 + 0.05 * random.below(16);  // the earliest kills hit MPI_Init
    REQUIRE(world.run_until([&] { return world.all_started(); }));
    const double start = monotonic_seconds();
    REQUIRE(world.run_until([&] { return monotonic_seconds() - start > moment; }));
    world.kill(static_cast<int>(random.below(3)), SIGKILL);
    REQUIRE(world.run_until([&] { return world.status(0) || world.status(1) || world.status(2); }));
    REQUIRE(world.lost.empty());
    world.end();
    for (const std::string& directory : world.directories()) REQUIRE_FALSE(std::filesystem::exists(directory));
  }
  FakeLaunchers last(on_one_host({programs + "world_probe", "hello"}));
  require_three_summed(last, "1 hosts");
}

TEST_CASE("the death of a server is detected") {
  FakeLaunchers world(on_one_host({programs + "world_probe", "spin"}));
  const bool formed = world.run_until([&] { return world.all_said("of 3"); });
  INFO(everything(world));
  REQUIRE(formed);
  world.kill_server(0);
  REQUIRE(world.run_until([&] { return !world.lost.empty(); }, 5));
  REQUIRE(world.lost.at(0).find("signal 9") != std::string::npos);
}

TEST_CASE("invalid jobs are rejected before launch and a missing program is named") {
  PmixJob job{};
  job.nspace = "test";
  job.node_of_rank = {0, 0};
  job.session_directory = "/tmp/lockstep-none";
  REQUIRE_THROWS_AS(PmixProcess("/proc/self/exe", job), DataError);  // serves no node
  job.served = {0, 1};
  REQUIRE_THROWS_AS(PmixProcess("/nowhere/lockstep", job), IoError);
}

TEST_CASE("fences span three hosts, also after kills") {
  const Namespaces hosts(3);
  if (!hosts.why_not().empty()) {
    WARN("skipped: no network namespaces here (" + hosts.why_not() + ")");
    return;
  }
  const auto on_three_hosts = [&](const std::string& what) {
    FakeGeneration generation{{}, {programs + "world_probe", what}, {{"LOCKSTEP_SIMULATED_HOSTS", "0,1,2"}}};
    for (int host = 0; host < 3; ++host) {
      generation.hosts.push_back({host, {host}, hosts.name(host), Namespaces::address(host)});
    }
    return generation;
  };
  for (int generation = 0; generation < 3; ++generation) {
    FakeLaunchers world(on_three_hosts("spin"));
    const bool formed = world.run_until([&] { return world.all_said("of 3 on 3 hosts"); });
    INFO(everything(world));
    REQUIRE(formed);
    world.kill(generation, SIGKILL);
    REQUIRE(world.run_until([&] { return world.status(generation).has_value(); }));
  }
  {
    FakeLaunchers world(on_three_hosts("spin"));
    world.break_fences = true;
    REQUIRE(world.run_until([&] { return world.fences > 0; }));
    const bool formed = world.run_until([&] { return world.all_said("of 3") || world.all_ended(); }, 3);
    INFO(everything(world));
    REQUIRE_FALSE((formed && !world.all_ended()));
  }
  FakeLaunchers world(on_three_hosts("hello"));
  require_three_summed(world, "3 hosts");
  REQUIRE(world.fences >= 1);
  std::cout << "three hosts: " << world.fences << " fences; " << world.output(0);
}
