// See subprocess.hpp.
#include "checkpoint/subprocess.hpp"

#include "core/deadline.hpp"
#include "core/killed_process.hpp"
#include "core/log.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>

namespace lockstep {
namespace {

constexpr double max_wait_s = 10;  ///< for the end of a child that was killed or has closed its pipe

[[noreturn]] void fail(const char* call) {
  const int error = errno;
  throw IoError(
      fmt::format("cannot start a process that reads a file: {} failed: {}; free memory or raise the limit of "
                  "processes",
                  call, std::generic_category().message(error)));
}

/// Bytes that count towards RLIMIT_DATA: the private writable memory of this process, resident or not.
std::uint64_t data_size() {
  std::uint64_t pages = 0;
  std::ifstream statistics("/proc/self/statm");
  for (int field = 0; field < 6; ++field) statistics >> pages;
  return statistics ? pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

/// Sets the resource limits and makes a crash silent: no signal handlers of this program or MPI, no message of the C
/// library, no core file.
void prepare_for_crash(double cpu_seconds, std::uint64_t memory) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPROF, SIGTERM, SIGINT, SIGHUP, SIGPIPE}) {
    std::signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  // RLIMIT_CPU knows whole seconds only.
  const auto microseconds = static_cast<std::int64_t>(1e6 * cpu_seconds);
  constexpr std::int64_t million = 1'000'000;
  const itimerval cpu{.it_interval = {}, .it_value = {microseconds / million, microseconds % million}};
  setitimer(ITIMER_PROF, &cpu, nullptr);
  if (const std::uint64_t own = data_size(); own != 0) {
    rlimit data{};
    getrlimit(RLIMIT_DATA, &data);
    data.rlim_cur = std::min<rlim_t>(own + memory, data.rlim_max);
    setrlimit(RLIMIT_DATA, &data);
  }
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (null >= 0) dup2(null, STDERR_FILENO);
}

}  // namespace

void PipeWriter::send(std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) _exit(1);  // the parent closed its end
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void PipeWriter::send(std::uint64_t number) const { send(std::as_bytes(std::span(&number, 1))); }

void PipeWriter::send(const std::string& text) const {
  send(std::uint64_t{text.size()});
  send(std::as_bytes(std::span(text)));
}

Subprocess::Subprocess(const std::function<void(PipeWriter&)>& work, const Limits& limits) : limits_(limits) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe");
  for (int& end : ends) {  // not among the standard streams, which may be closed: the child replaces stderr
    if (end > STDERR_FILENO) continue;
    const int above = fcntl(end, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (above < 0) fail("pipe");
    close(end);
    end = above;
  }
  pid_ = fork();
  if (pid_ < 0) {
    close(ends[0]);
    close(ends[1]);
    fail("fork");
  }
  if (pid_ == 0) {
    close(ends[0]);
    prepare_for_crash(limits.cpu_seconds, limits.memory);
    try {
      PipeWriter output(ends[1]);
      work(output);
    } catch (...) {
      _exit(1);
    }
    _exit(0);  // skips destructors and exit handlers, which belong to the parent
  }
  close(ends[1]);
  descriptor_ = ends[0];
}

Subprocess::~Subprocess() {
  close(descriptor_);
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  static_cast<void>(reap_killed(pid_, max_wait_s, "a process that reads a file"));
}

/// Waits until the child has sent something or has ended. A stopped child, and one that waits for a network file system
/// that is gone, do neither. Returns false after too long a silence.
bool Subprocess::wait_for_bytes() const {
  const Deadline end = Deadline::after(is_silent_ ? 0 : limits_.silence_seconds);
  while (true) {
    const Deadline report = std::min(end, Deadline::after(limits_.report_seconds));
    pollfd entry{descriptor_, POLLIN, 0};
    const int ready = poll(&entry, 1, report.poll_timeout());
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // so that read() fails
    if (end.passed()) {
      is_silent_ = true;
      return false;
    }
    if (ready == 0 && report.passed()) {
      log_info(fmt::format("waiting {:.0f} s more for process {}, which reads a file; it is in state {}",
                           end.seconds_left(), pid_, describe_process_state(pid_)));
    }
  }
}

bool Subprocess::receive(std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    if (!wait_for_bytes()) return false;
    const ssize_t got = read(descriptor_, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

bool Subprocess::receive(std::uint64_t& number) const { return receive(std::as_writable_bytes(std::span(&number, 1))); }

bool Subprocess::receive(std::string& text, std::uint64_t max_bytes) const {
  std::uint64_t size = 0;
  if (!receive(size) || size > max_bytes) return false;
  text.resize(size);
  return receive(std::as_writable_bytes(std::span(text)));
}

Subprocess::Exit Subprocess::end() {
  // Only its end closes the child's end of the pipe.
  std::byte next{};
  const bool ended_by_itself = !receive(std::span(&next, 1)) && !is_silent_;
  const std::string state = describe_process_state(pid_);
  if (!ended_by_itself) kill(pid_, SIGKILL);
  const std::optional<int> end = reap_killed(std::exchange(pid_, -1), max_wait_s, "a process that reads a file");
  if (is_silent_) {
    return {fmt::format("has sent nothing for {:g} s and was in state {}", limits_.silence_seconds, state), false,
            "check the disk and its mount"};
  }
  if (!ended_by_itself) return {"sent invalid data", true};
  const int status = end.value_or(0);
  if (!WIFSIGNALED(status)) return {"ended early", false};
  const int number = WTERMSIG(status);
  if (number == SIGPROF) return {"did not finish", true};
  constexpr std::array faults{SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
  const bool crashed = std::find(faults.begin(), faults.end(), number) != faults.end();
  return {fmt::format("was killed by signal {} ({})", number, strsignal(number)), crashed};
}

bool can_allocate(std::uint64_t memory) noexcept {
  rlimit data{};
  getrlimit(RLIMIT_DATA, &data);
  data.rlim_cur = data.rlim_max;
  setrlimit(RLIMIT_DATA, &data);
  void* const pages = mmap(nullptr, memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return false;
  munmap(pages, memory);
  return true;
}

}  // namespace lockstep
