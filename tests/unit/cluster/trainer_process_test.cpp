// Trainer processes: their environment, how their exit is reported, and that no descendants survive.
#include "cluster/launcher/trainer_process.hpp"

#include "core/deadline.hpp"
#include "support/catch.hpp"
#include "support/scoped_variable.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

/// A temporary file that child processes write to.
class Note {
 public:
  Note() {
    const int file = mkstemp(path_.data());
    if (file >= 0) (void)close(file);
  }
  ~Note() { std::filesystem::remove(path_); }
  Note(const Note&) = delete;
  Note& operator=(const Note&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Waits until the file ends with a newline and returns its content.
  [[nodiscard]] std::string wait_for_line() const {
    for (const Deadline deadline = Deadline::after(20); !deadline.passed();) {
      std::ifstream file(path_);
      std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      if (text.ends_with('\n')) return text;
      std::this_thread::yield();
    }
    return {};
  }

 private:
  std::string path_ = (std::filesystem::temp_directory_path() / "child_test_XXXXXX").string();
};

KeptFiles& kept_files() {
  static KeptFiles files;
  return files;
}

TrainerProcess shell(const std::string& script, const Environment& environment = {}) {
  return TrainerProcess({"/bin/sh", "-c", script}, environment, kept_files());
}

/// Sends a message, as bytes of a shell's printf.
std::string said(const Message& message) {
  std::string text;
  for (const char byte : to_datagram(message)) {
    std::array<char, 8> octal{};
    (void)std::snprintf(octal.data(), octal.size(), "\\%03o", static_cast<unsigned char>(byte));
    text += octal.data();
  }
  return "printf '" + text + "' >&$LOCKSTEP_CONTROL_FD\n";
}

ProcessExit wait_for_end(TrainerProcess& child) {
  for (const Deadline deadline = Deadline::after(20); !deadline.passed(); std::this_thread::yield()) {
    if (const std::optional<ProcessExit> end = child.reap()) return *end;
  }
  return {-1, -1};
}

bool runs(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text.at(name_end + 2) != 'Z';
}

bool ends(pid_t pid) {
  for (const Deadline deadline = Deadline::after(20); !deadline.passed(); std::this_thread::yield()) {
    if (!runs(pid)) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a child's exit is reported once, as a code or a signal") {
  TrainerProcess ended = shell("exit 64");
  const ProcessExit with_code = wait_for_end(ended);
  CHECK(with_code.code == 64);
  CHECK(with_code.signal == 0);
  CHECK_FALSE(ended.reap());

  TrainerProcess killed = shell("kill -9 $$");
  const ProcessExit with_signal = wait_for_end(killed);
  CHECK(with_signal.code == 0);
  CHECK(with_signal.signal == SIGKILL);

  TrainerProcess unknown({"/nowhere/program"}, {}, kept_files());
  CHECK(wait_for_end(unknown).code == 64);
}

TEST_CASE("files that one child asks to keep are open in the next, until they are removed") {
  const Note note;
  KeptFiles kept;
  const auto run = [&kept](const std::string& script) {
    TrainerProcess child({"/bin/sh", "-c", script}, {{"LOCKSTEP_KEPT_FILES", "0,1"}}, kept);
    return wait_for_end(child).code;
  };
  CHECK(run("test -z \"$LOCKSTEP_KEPT_FILES\"") == 0);
  std::array<int, 2> ends{};
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()) == 0);
  {
    const FileDescriptor file(note.path(), O_RDWR);
    REQUIRE(send_file(ends[0], file));
  }
  REQUIRE(send(ends[0], "a report", 8, 0) == 8);
  std::array<char, 16> bytes{};
  ReceivedMessage first = receive_message(ends[1], bytes);
  CHECK(first.count == 1);
  REQUIRE(first.file.valid());
  const ReceivedMessage second = receive_message(ends[1], bytes);
  CHECK(second.count == 8);
  CHECK(!second.file.valid());
  for (const int end : ends) (void)close(end);
  CHECK(kept.add(std::move(first.file)));
  CHECK(run("eval \"echo kept >&$LOCKSTEP_KEPT_FILES\"") == 0);
  CHECK(note.wait_for_line() == "kept\n");
  kept.let_inherit();
  {
    const ScopedVariable inherited(kept_files_variable, "0," + kept.numbers() + ",99999,x");
    for (int strategy = 0; strategy < 2; ++strategy) CHECK(inherited_files().size() == 1);  // each has its own
  }
  std::filesystem::remove(note.path());
  CHECK(kept.add(FileDescriptor("/dev/null", O_RDONLY)));
  CHECK(kept.numbers().find(',') == std::string::npos);
  int added = 1;
  while (added < 100 && kept.add(FileDescriptor("/dev/null", O_RDONLY))) ++added;
  CHECK(added == KeptFiles::max_directories + 1);
}

TEST_CASE("a child inherits its environment, its socket end and default signal handlers") {
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  REQUIRE(pthread_sigmask(SIG_BLOCK, &blocked, &before) == 0);
  auto* const handler = std::signal(SIGPIPE, SIG_IGN);
  const Note note;
  TrainerProcess child = shell(
      "echo \"$GIVEN/$HOME/$(readlink /proc/self/fd/$LOCKSTEP_CONTROL_FD | cut -d: -f1)/$(readlink /proc/self/fd/0)/"
      "$(grep -E '^Sig(Blk|Ign)' /proc/$$/status | tr -d '\\n')\" > " +
          note.path() + "; exec sleep 100",
      {{"GIVEN", "this"}, {"PATH", "/bin:/usr/bin"}, {"LOCKSTEP_CONTROL_FD", "77"}});
  CHECK(note.wait_for_line() == "this//socket//dev/null/SigBlk:\t0000000000000000SigIgn:\t0000000000000000\n");
  child.signal(SIGTERM);
  CHECK(wait_for_end(child).signal == SIGTERM);
  (void)std::signal(SIGPIPE, handler);
  REQUIRE(pthread_sigmask(SIG_SETMASK, &before, nullptr) == 0);
}

TEST_CASE("the last valid report of a child counts") {
  Progress good;
  good.step = 12;
  good.activity = Activity::training;
  good.loss = std::numeric_limits<double>::quiet_NaN();
  Progress bad = good;
  bad.step = 13;
  bad.wait_seconds = -1;
  Progress endless = good;
  endless.step = 14;
  endless.max_silent_seconds = std::numeric_limits<double>::infinity();
  TrainerProcess child = shell(said(Progress{}) + said(good) + said(bad) + said(endless) +
                               "printf 12345678 >&$LOCKSTEP_CONTROL_FD\nprintf '%01000d' 7 >&$LOCKSTEP_CONTROL_FD\n"
                               "read line <&$LOCKSTEP_CONTROL_FD");
  std::optional<Progress> report;
  for (const Deadline deadline = Deadline::after(20); !deadline.passed() && (!report || report->step != 12);) {
    if (auto next = child.take_report()) report = next;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  REQUIRE(report);
  CHECK(report->step == 12);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK_FALSE(child.take_report());
}

TEST_CASE("a child's last message is part of its end") {
  TrainerProcess child = shell(said(Progress{}) + said(Failed{0, "the disk is full"}) + "exit 74");
  const ProcessExit end = wait_for_end(child);
  CHECK(end.code == 74);
  CHECK(end.error == "the disk is full");
  TrainerProcess silent = shell("exit 74");
  CHECK(wait_for_end(silent).error.empty());
}

TEST_CASE("a child that is told to end has not finished, whatever its exit code") {
  const auto end_of = [](const std::string& last_words) {
    const Note note;
    TrainerProcess child = shell("finish() {\n" + last_words + "exit 0\n}\ntrap finish TERM\n" + said(Progress{}) +
                                 "echo > " + note.path() + "\nwhile :; do :; done");
    static_cast<void>(note.wait_for_line());
    child.signal(SIGTERM);
    return wait_for_end(child);
  };
  CHECK(end_of("").code == 75);
  CHECK(end_of(said(TrainingDone{})).code == 75);
}

TEST_CASE("a child that told that it has finished has, whatever signal ends it") {
  TrainerProcess failing = shell(said(Progress{}) + said(TrainingDone{}) + "exit 3");
  CHECK(wait_for_end(failing).code == 3);
  const Note note;
  TrainerProcess child =
      shell(said(Progress{}) + said(TrainingDone{}) + "echo > " + note.path() + "\nwhile :; do :; done");
  static_cast<void>(note.wait_for_line());
  child.signal(SIGTERM);
  const ProcessExit end = wait_for_end(child);
  CHECK(end.code == 0);
  CHECK(end.signal == 0);
}

TEST_CASE("a script has finished if the program that it ran has") {
  const auto end_of = [](const std::string& program) {
    TrainerProcess child = shell("(" + program + "\n:)\nexit 0", {{"PATH", "/bin:/usr/bin"}});
    return wait_for_end(child);
  };
  CHECK(end_of(said(Progress{}) + said(TrainingDone{})).code == 0);
  const ProcessExit killed = end_of(said(Progress{}) + "sh -c 'kill -9 $PPID'");
  CHECK(killed.code == 70);
  CHECK(killed.is_wrapper);
  CHECK(end_of("true").code == 0);
}

TEST_CASE("a child's descendants are killed with it") {
  const Environment path{{"PATH", "/bin:/usr/bin"}};
  SECTION("when it exits") {
    const Note note;
    TrainerProcess child = shell("sleep 100 & echo $! > " + note.path(), path);
    const std::string started = note.wait_for_line();
    CHECK(wait_for_end(child).code == 0);
    CHECK(ends(std::stoi(started)));
  }
  SECTION("when its owner is destroyed") {
    const Note note;
    std::string started;
    {
      const TrainerProcess child = shell("sleep 100 & echo $! > " + note.path() + "; wait", path);
      started = note.wait_for_line();
      CHECK(runs(std::stoi(started)));
    }
    CHECK(ends(std::stoi(started)));
  }
  SECTION("a child ends when its owner is killed") {
    const Note note;
    const pid_t owner = fork();
    if (owner == 0) {
      const TrainerProcess child = shell("echo $$ > " + note.path() + "; exec sleep 100", path);
      while (true) (void)pause();
    }
    const std::string started = note.wait_for_line();
    REQUIRE(kill(owner, SIGKILL) == 0);
    REQUIRE(waitpid(owner, nullptr, 0) == owner);
    CHECK(ends(std::stoi(started)));
  }
}

TEST_CASE("programs are looked up in PATH as by a shell") {
  CHECK(find_program("sh", {{"PATH", "/nowhere:/bin"}}) == "/bin/sh");
  CHECK(find_program("/bin/sh", {}) == "/bin/sh");
  CHECK_THROWS_AS(find_program("sh", {{"PATH", "/nowhere"}}), UsageError);
  CHECK_THROWS_AS(find_program("/etc/passwd", {}), UsageError);
  CHECK_THROWS_AS(find_program("/bin", {}), UsageError);
  CHECK_THROWS_AS(find_program("", {{"PATH", "/bin"}}), UsageError);
}
