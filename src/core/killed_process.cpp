// See killed_process.hpp.
#include "core/killed_process.hpp"

#include "core/deadline.hpp"
#include "core/log.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <exception>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {

namespace {

constexpr std::chrono::microseconds first_pause{100};
constexpr std::chrono::microseconds max_pause{10'000};

/// The children that earlier calls left behind. Without this list each would stay a zombie while the launcher lives.
std::vector<pid_t>& left_behind() {
  static std::vector<pid_t> pids;
  return pids;
}

std::optional<int> reap(pid_t pid) noexcept {
  int status = 0;
  const pid_t ended = waitpid(pid, &status, WNOHANG);
  if (ended == pid) return status;
  if (ended < 0 && errno != EINTR) return 0;
  return {};
}

}  // namespace

char process_state(pid_t pid) {
  if (pid < 0) return '\0';
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(") ");  // the program name before it may hold any bytes
  return name_end == std::string::npos || name_end + 2 >= line.size() ? '\0' : line[name_end + 2];
}

std::string describe_process_state(pid_t pid) {
  const char state = process_state(pid);
  if (state == '\0') return "";
  std::ifstream file(fmt::format("/proc/{}/wchan", pid));
  std::string where;
  std::getline(file, where);
  return std::string(1, state) + (where.empty() || where == "0" ? "" : " in " + where);
}

std::optional<int> reap_within(pid_t pid, double seconds) noexcept {
  const Deadline deadline = Deadline::after(seconds);
  std::chrono::microseconds pause = first_pause;
  while (true) {
    const bool is_last = deadline.passed();
    if (const std::optional<int> status = reap(pid)) return status;
    if (is_last) return {};
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, max_pause);
  }
}

std::optional<int> reap_killed(pid_t pid, double seconds, const std::string& what) noexcept {
  std::erase_if(left_behind(), [](pid_t each) { return reap(each).has_value(); });
  const std::optional<int> status = reap_within(pid, seconds);
  if (status) return status;
  try {
    log_warning(
        fmt::format("{} (process {}) was killed but has not ended: it is in state {}; leaving it behind; check the "
                    "host's disks and network file systems",
                    what, pid, describe_process_state(pid)));
    left_behind().push_back(pid);
  } catch (const std::exception&) {  // out of memory: init reaps it
  }
  return {};
}

}  // namespace lockstep
