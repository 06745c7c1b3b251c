// Reads the C++ clocks, and the age of this process from /proc/self/stat.
#include "core/clock.hpp"

#include <unistd.h>
#include <ctime>

#include <chrono>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>

namespace lockstep {
namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

template <class StdClock>
double seconds_of() noexcept {
  return std::chrono::duration<double>(StdClock::now().time_since_epoch()).count();
}

}  // namespace

double monotonic_seconds() noexcept { return seconds_of<std::chrono::steady_clock>(); }

double thread_cpu_seconds() noexcept {
  timespec time{};
  (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);  // cannot fail for the calling thread
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double wall_clock_seconds() noexcept { return seconds_of<std::chrono::system_clock>(); }

double seconds_since_process_start() {
  std::ifstream file("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // Field 2 is the program's name in parentheses and may contain any character; field 3 starts after the last ')'.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return unknown;
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double start_ticks = 0;
  const long ticks_per_second = ::sysconf(_SC_CLK_TCK);
  timespec now{};
  if (!(fields >> start_ticks) || ticks_per_second <= 0 || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return unknown;
  const double since_boot = static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  return since_boot - start_ticks / static_cast<double>(ticks_per_second);
}

}  // namespace lockstep
