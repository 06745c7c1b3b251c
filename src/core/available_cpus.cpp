// Combines the scheduler's affinity mask with the cgroup's CPU quota (version 1 or 2).
#include "core/available_cpus.hpp"

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

/// The cgroup's quota in CPUs; infinity without a quota.
double cgroup_quota() {
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

double available_cpus() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  double count = no_limit;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) count = CPU_COUNT(&cores);
  count = std::min(count, cgroup_quota());
  return count == no_limit ? std::max(1U, std::thread::hardware_concurrency()) : count;
}

std::size_t available_cpu_count() {
  return std::max<std::size_t>(1, static_cast<std::size_t>(std::floor(available_cpus())));
}

}  // namespace lockstep
