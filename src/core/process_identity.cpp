// See process_identity.hpp.
#include "core/process_identity.hpp"

#include "core/parse_number.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <utility>

namespace lockstep {
namespace {

/// When a process started, in ticks since boot; empty if there is no such process.
std::string start_time_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  const std::string statistics{std::istreambuf_iterator<char>(file), {}};
  // The name in parentheses may hold spaces. The start time is the 20th field after it.
  std::size_t at = statistics.rfind(')');
  for (int field = 0; field < 20 && at != std::string::npos; ++field) at = statistics.find(' ', at + 1);
  return at == std::string::npos ? "" : statistics.substr(at + 1, statistics.find(' ', at + 1) - at - 1);
}

}  // namespace

std::string process_identity(pid_t process) {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat pid_namespace {};
  if (stat("/proc/self/ns/pid", &pid_namespace) != 0) pid_namespace.st_ino = 0;
  return fmt::format("{}-{}-{}-{}", boot, pid_namespace.st_ino, process, start_time_of(process));
}

bool has_died(const std::string& identity) {
  const std::string self = process_identity();
  const auto split = [](const std::string& text) {
    const std::size_t start = text.rfind('-');
    const std::size_t pid = start == std::string::npos || start == 0 ? start : text.rfind('-', start - 1);
    return std::pair(pid, start);
  };
  const auto [pid, start] = split(identity);
  const auto [own_pid, own_start] = split(self);
  if (pid == std::string::npos || own_pid == std::string::npos) return false;
  if (identity.substr(0, pid) != self.substr(0, own_pid)) return false;
  const auto number = parse_number<pid_t>(identity.substr(pid + 1, start - pid - 1));
  if (!number || *number <= 0) return false;
  if (kill(*number, 0) != 0 && errno == ESRCH) return true;
  const std::string found = start_time_of(*number);  // empty if other users' processes are hidden
  return !found.empty() && found != identity.substr(start + 1);
}

}  // namespace lockstep
