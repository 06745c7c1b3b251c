// Worlds without a launcher, and how worlds end. For the latter this program runs hidden cases of itself under mpirun.
#include "cluster/world/world.hpp"

#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <sys/wait.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

using namespace lockstep;

TEST_CASE("a process without a launcher is a world of one without MPI") {
  const World world;
  REQUIRE(world.rank() == 0);
  REQUIRE(world.size() == 1);
  REQUIRE(world.is_chief());
  REQUIRE(world.hosts() == 1);
  REQUIRE(world.host_of_rank() == std::vector<int>{0});
}

TEST_CASE("simulated hosts are numbered in order of their first ranks") {
  REQUIRE(parse_simulated_hosts("0", 1) == std::vector<int>{0});
  REQUIRE(parse_simulated_hosts("0,0,1", 3) == std::vector<int>{0, 0, 1});
  REQUIRE(parse_simulated_hosts("0,1,0", 3) == std::vector<int>{0, 1, 0});
  REQUIRE(parse_simulated_hosts("7,3,7,100", 4) == std::vector<int>{0, 1, 0, 2});
}

TEST_CASE("simulated hosts that do not match the world are rejected") {
  for (const char* wrong : {"", "0", "0,1", "0,1,2,3", "0,1,", ",0,1", "0,,1", "0,a,1", "0,-1,1", "0,-0,1", "0, 1,1",
                            "0,1,1 ", "0;1;1", "0,1,99999999999"}) {
    CAPTURE(wrong);
    REQUIRE_THROWS_AS(parse_simulated_hosts(wrong, 3), UsageError);
  }
}

namespace {

struct Ending {
  int code = -1;
  std::string output;

  [[nodiscard]] int count(const std::string& text) const {
    int found = 0;
    for (std::size_t at = output.find(text); at != std::string::npos; at = output.find(text, at + 1)) ++found;
    return found;
  }
};

/// Runs a hidden case of this program on three ranks.
Ending ending_of(const std::string& tag) {
  const std::filesystem::path root = LOCKSTEP_SOURCE_DIR;
  const std::string command = "exec " + (root / "scripts/mpirun.sh").string() + " -np 3 " +
                              std::filesystem::read_symlink("/proc/self/exe").string() + " '" + tag + "' 2>&1";
  Ending ending;
  std::FILE* const pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> buffer{};
  for (std::size_t read = 1; read > 0;) {
    read = std::fread(buffer.data(), 1, buffer.size(), pipe);
    ending.output.append(buffer.data(), read);
  }
  const int status = pclose(pipe);
  REQUIRE(WIFEXITED(status));
  ending.code = WEXITSTATUS(status);
  return ending;
}

}  // namespace

TEST_CASE("all ranks fail alike", "[.alike]") {
  const World world;
  World::end_with_error(65, "the loss is NaN");
}

TEST_CASE("one rank fails", "[.alone]") {
  const World world;
  if (world.rank() == 1) World::end_with_error(74, "the disk is full");
  std::this_thread::sleep_for(std::chrono::minutes(1));  // like a rank that waits for the other one
}

TEST_CASE("all ranks fail before there is a world", "[.early]") { World::end_with_error(64, "no such option"); }

TEST_CASE("identical failures of all ranks are printed once") {
  const Ending ending = ending_of("[.alike]");
  CAPTURE(ending.output);
  REQUIRE(ending.code == 65);
  REQUIRE(ending.count("error: the loss is NaN") == 1);
  REQUIRE(ending.count("] error: the loss is NaN") == 0);
}

TEST_CASE("the failure of one rank names it and ends the world") {
  const Ending ending = ending_of("[.alone]");
  CAPTURE(ending.output);
  REQUIRE(ending.code == 74);
  REQUIRE(ending.count("[rank 1] error: the disk is full") == 1);
  REQUIRE(ending.count("error: the disk is full") == 1);
}

TEST_CASE("a failure before the world forms is printed once") {
  const Ending ending = ending_of("[.early]");
  CAPTURE(ending.output);
  REQUIRE(ending.code == 64);
  REQUIRE(ending.count("error: no such option") == 1);
}
