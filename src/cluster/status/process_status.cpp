// See process_status.hpp.
#include "cluster/status/process_status.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>

namespace lockstep {

namespace {

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// When this process started, in seconds since 1970, to a hundredth.
double read_start_time() {
  std::ifstream file("/proc/self/stat");
  const std::string statistics{std::istreambuf_iterator<char>(file), {}};
  // The name in parentheses may hold spaces. The start time, in ticks since the boot, is the 20th field after it.
  std::istringstream fields(statistics.substr(std::min(statistics.size(), statistics.rfind(')') + 1)));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;
  timespec now{};
  timespec since_boot{};
  if (field.empty() || clock_gettime(CLOCK_REALTIME, &now) != 0 || clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0)
    return 0;
  const auto ticks = std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return static_cast<double>(now.tv_sec - since_boot.tv_sec) + ticks;
}

}  // namespace

ProcessStatus read_process_status() {
  ProcessStatus status;
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) status.cpu_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) status.max_descriptors = limit.rlim_cur;
  std::uint64_t pages = 0;
  std::uint64_t resident_pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident_pages;
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  status.virtual_bytes = pages * page;
  status.resident_bytes = resident_pages * page;
  status.start_time = read_start_time();
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end;
       entry.increment(error)) {
    ++status.open_descriptors;
  }
  if (status.open_descriptors > 0) --status.open_descriptors;  // the iterator's own
  return status;
}

}  // namespace lockstep
