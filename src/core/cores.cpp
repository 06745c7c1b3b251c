// Asks the scheduler and both versions of control groups.
#include "core/cores.hpp"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <limits>
#include <thread>

namespace lockstep {

namespace {

constexpr double no_limit = std::numeric_limits<double>::infinity();

/// CPU time per time that the control group grants; infinite where it sets none.
double quota_of_control_group() {
  double quota = 0;
  double period = 0;
  if (std::ifstream("/sys/fs/cgroup/cpu.max") >> quota >> period && period > 0) return quota / period;
  if (std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota && quota > 0 &&
      std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period && period > 0) {
    return quota / period;
  }
  return no_limit;
}

}  // namespace

double granted_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  double count = no_limit;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) count = CPU_COUNT(&cores);
  count = std::min(count, quota_of_control_group());
  return count == no_limit ? std::max(1U, std::thread::hardware_concurrency()) : count;
}

std::size_t available_cores() {
  return std::max<std::size_t>(1, static_cast<std::size_t>(std::floor(granted_cores())));
}

}  // namespace lockstep
