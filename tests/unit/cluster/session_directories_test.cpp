// What killed launchers leave behind is swept by the next one, and nothing else.
#include "cluster/pmix/session_directories.hpp"

#include "support/catch.hpp"
#include "support/scoped_variable.hpp"
#include "support/scratch_directory.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

using namespace lockstep;
using namespace lockstep::testing;
namespace fs = std::filesystem;

namespace {

/// The directories that a process made before SIGKILL ended it.
std::array<std::string, 2> directories_of_killed_process() {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const SessionDirectories made;
    const std::string names = made.files() + "\n" + made.memory() + "\n";
    (void)!write(ends[1], names.data(), names.size());
    (void)raise(SIGKILL);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  std::array<char, 1024> text{};
  REQUIRE(read(ends[0], text.data(), text.size()) > 0);
  for (const int end : ends) close(end);
  const std::string names = text.data();
  const std::size_t line = names.find('\n');
  return {names.substr(0, line), names.substr(line + 1, names.find('\n', line + 1) - line - 1)};
}

}  // namespace

TEST_CASE("directories of a killed launcher are swept, those of a living one stay") {
  const ScratchDirectory scratch;
  const ScopedVariable temporary("TMPDIR", scratch.path().string());
  const SessionDirectories living;
  const fs::path unknown = scratch / "lockstep-world-nobody";
  fs::create_directory(unknown);  // without an owner file
  const std::array<std::string, 2> left = directories_of_killed_process();
  std::ofstream(left[0] + "/vader_segment.1") << "left behind";
  REQUIRE(fs::exists(left[0]));
  const SessionDirectories next;
  for (const std::string& directory : left) CHECK_FALSE((!directory.empty() && fs::exists(directory)));
  CHECK(fs::exists(living.files()));
  CHECK((living.memory().empty() || fs::exists(living.memory())));
  CHECK(fs::exists(unknown));
  CHECK(sweep_session_directories("/nowhere") == 0);
}

TEST_CASE("a directory without an owner is swept once it is old and nobody's") {
  const ScratchDirectory scratch;
  const auto make = [&scratch](const std::string& name, const std::string& file, bool is_old) {
    const fs::path directory = scratch / ("lockstep-world-" + name);
    fs::create_directory(directory);
    if (!file.empty()) std::ofstream(directory / file) << "x";
    if (is_old) fs::last_write_time(directory, fs::file_time_type::clock::now() - std::chrono::minutes(2));
    return directory;
  };
  const fs::path new_empty = make("a", "", false);
  const fs::path old_empty = make("b", "", true);             // its removal was cut off
  const fs::path old_unnamed = make("c", "owner.new", true);  // its launcher was killed as it made it
  const fs::path somebodys = make("d", "file", true);
  CHECK(sweep_session_directories(scratch.path().string()) == 2);
  CHECK(fs::exists(new_empty));
  CHECK(!fs::exists(old_empty));
  CHECK(!fs::exists(old_unnamed));
  CHECK(fs::exists(somebodys));
}
