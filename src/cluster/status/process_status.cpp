// See process_status.hpp.
#include "cluster/status/process_status.hpp"

#include "core/clock.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace lockstep {

namespace {

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
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
  static const double start_time = wall_clock_seconds() - seconds_since_process_start();  // equal in all readings
  status.start_time = std::isnan(start_time) ? 0 : start_time;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end;
       entry.increment(error)) {
    ++status.open_descriptors;
  }
  if (status.open_descriptors > 0) --status.open_descriptors;  // the iterator's own
  return status;
}

}  // namespace lockstep
