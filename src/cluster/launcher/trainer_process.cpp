// See trainer_process.hpp.
#include "cluster/launcher/trainer_process.hpp"

#include "core/killed_process.hpp"
#include "core/log.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

constexpr int usage = static_cast<int>(ExitCode::usage);
constexpr double max_wait_s = 10;  // a process frees its memory before it ends, which may take seconds
constexpr int max_reports_at_once = 64;
constexpr int temporary = static_cast<int>(ExitCode::temporary);
constexpr int internal = static_cast<int>(ExitCode::internal);

std::string text_of(int error) { return std::generic_category().message(error); }

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

bool is_duration(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

bool is_valid(const Progress& report) {
  return is_duration(report.allreduce_seconds) && is_duration(report.wait_seconds) &&
         is_duration(report.max_silent_seconds) && is_duration(report.examples_per_second);
}

/// Resets the signals that the launcher ignores or blocks.
void restore_signals() {
  for (int number = 1; number < NSIG; ++number) (void)std::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// Runs in the forked process.
[[noreturn]] void execute(std::vector<std::string>& command, std::vector<std::string>& variables, int control,
                          const KeptFiles& kept_files, pid_t launcher) {
  (void)setpgid(0, 0);
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(temporary);  // the launcher died before PR_SET_PDEATHSIG
  restore_signals();
  if (const int null = open("/dev/null", O_RDONLY); null > STDIN_FILENO) {
    (void)dup2(null, STDIN_FILENO);
    (void)close(null);
  }
  (void)fcntl(control, F_SETFD, 0);
  kept_files.let_inherit();
  (void)execve(command.front().c_str(), pointers_to(command).data(), pointers_to(variables).data());
  log_error(fmt::format("cannot run {}: {}", command.front(), text_of(errno)));
  _exit(usage);
}

}  // namespace

TrainerProcess::TrainerProcess(const std::vector<std::string>& command, const Environment& environment,
                               KeptFiles& kept_files)
    : kept_files_(kept_files) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw IoError(fmt::format("socketpair failed: {}", text_of(errno)));
  }
  control_ = Socket(ends[0]);
  const Socket theirs(ends[1]);
  const int yes = 1;  // each report tells its sender
  (void)setsockopt(control_.descriptor(), SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes);
  std::vector<std::string> words = command;
  Environment complete = environment;
  complete["LOCKSTEP_CONTROL_FD"] = std::to_string(theirs.descriptor());
  complete[kept_files_variable] = kept_files_.numbers();
  std::vector<std::string> variables;
  for (const auto& [name, value] : complete) variables.push_back(name + "=" + value);
  const pid_t launcher = getpid();
  pid_ = fork();
  if (pid_ < 0) throw IoError(fmt::format("cannot start {}: {}", command.front(), text_of(errno)));
  if (pid_ == 0) execute(words, variables, theirs.descriptor(), kept_files_, launcher);
  (void)setpgid(pid_, pid_);  // the child does the same; either may run first
}

TrainerProcess::~TrainerProcess() {
  if (pid_ < 0) return;
  signal(SIGKILL);
  (void)reap_killed(pid_, max_wait_s, "a trainer");
}

void TrainerProcess::signal(int number) noexcept {
  if (pid_ < 0) return;
  if (number == SIGTERM && !was_told_to_end_) {
    (void)take_report();  // which may tell that it has finished already
    was_told_to_end_ = true;
  }
  if (kill(-pid_, number) != 0) (void)kill(pid_, number);
}

void TrainerProcess::send_request(StopRequest request) const noexcept {
  const auto byte = static_cast<std::uint8_t>(request);
  if (control_) (void)send(control_.descriptor(), &byte, sizeof byte, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void TrainerProcess::request_stack() const noexcept {
  if (pid_ > 0 && reporter_ > 0 && getpgid(reporter_) == pid_) (void)kill(reporter_, SIGQUIT);
}

std::string TrainerProcess::describe_state() const { return describe_process_state(pid_); }

void TrainerProcess::leave_behind(const std::string& what) noexcept {
  if (pid_ >= 0) (void)reap_killed(std::exchange(pid_, -1), 0, what);
}

/// A rank joins its generation's MPI world once; a second program would wait in MPI_Init for ever.
void TrainerProcess::end_second_program() {
  if (std::exchange(is_second_program_, true)) return;
  error_ =
      "the launched command ran a second Lockstep program, but a launch forms one world for one program; give each "
      "program a launch of its own";
  log_error(error_);
  signal(SIGKILL);
}

std::optional<ProcessExit> TrainerProcess::reap() {
  if (pid_ < 0) return {};
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != pid_) return {};
  (void)kill(-pid_, SIGKILL);  // before reaping, while the process group id cannot be reused
  int status = 0;
  (void)waitpid(pid_, &status, 0);
  const pid_t ended = std::exchange(pid_, -1);
  (void)take_report();  // its last message
  control_.close();
  if (is_second_program_) return ProcessExit{usage, 0, error_};
  return judge(status, reporter_ > 0 && reporter_ != ended);
}

ProcessExit TrainerProcess::judge(int status, bool is_wrapper) {
  // Code after the training may fail, but a signal takes nothing from a training that is complete.
  if (has_finished_ && !is_wrapper && (WIFSIGNALED(status) || WEXITSTATUS(status) == 0)) return {};
  if (WIFSIGNALED(status)) return {0, WTERMSIG(status), error_, is_wrapper};
  int code = WEXITSTATUS(status);
  if (code == 0 && was_told_to_end_) {
    code = temporary;
  } else if (code == 0 && is_wrapper && !has_finished_) {
    code = internal;
    log_error(
        "the launched command ended with exit code 0, but the Lockstep program that it ran did not; let the command "
        "end with the program's code (in a shell: exec, or set -o pipefail)");
  }
  return {code, 0, error_, is_wrapper, tasks_never_came_ && code == temporary};
}

std::optional<Progress> TrainerProcess::take_report() {
  std::optional<Progress> last;
  std::array<char, max_error_bytes + 64> bytes{};  // the largest message is an error
  for (int left = max_reports_at_once; control_ && left > 0; --left) {
    auto [count, sender, file] = receive_message(control_.descriptor(), bytes);
    if (count == 1 && bytes.front() == no_message) {  // of send_file()
      if (file.valid() && kept_files_.add(std::move(file))) continue;
      log_warning(
          "the launcher cannot keep the lock of a directory, since it has too few file descriptors (ulimit -n); if the "
          "workers restart, another job may take this job's directory meanwhile");
    } else if (count > 0) {
      try {
        const Message message = from_datagram({bytes.data(), static_cast<std::size_t>(count)});
        if (const auto* report = std::get_if<Progress>(&message); report != nullptr && is_valid(*report)) {
          last = *report;
          if (reporter_ > 0 && sender > 0 && sender != reporter_) end_second_program();
          if (!is_second_program_) reporter_ = sender;
        }
        if (std::holds_alternative<TrainingDone>(message) && sender == reporter_ && !was_told_to_end_)
          has_finished_ = true;
        if (std::holds_alternative<TasksNeverCame>(message)) tasks_never_came_ = true;
        if (const auto* failed = std::get_if<Failed>(&message)) error_ = failed->reason.substr(0, max_error_bytes);
      } catch (const DataError&) {  // skipped
      }
    } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
      control_.close();
    } else if (errno == EAGAIN) {
      break;
    }
  }
  return last;
}

std::string find_program(const std::string& name, const Environment& environment) {
  if (name.empty()) throw UsageError("the name of the program to launch is empty");
  const auto can_run = [](const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) {
    if (can_run(name)) return name;
    throw UsageError(
        fmt::format("cannot run {}: there is no such program; check the path and the file's execute permission", name));
  }
  std::istringstream directories(value_of(environment, "PATH"));
  for (std::string directory; std::getline(directories, directory, ':');) {
    std::string path = (directory.empty() ? "." : directory) + "/" + name;
    if (can_run(path)) return path;
  }
  throw UsageError(fmt::format("cannot run {}: there is no such program on PATH", name));
}

}  // namespace lockstep
