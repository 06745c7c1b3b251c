// Combines the scheduler's affinity mask with the CPU quota of the control groups.
#include "core/available_cpus.hpp"

#include "core/cgroup.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <thread>

namespace lockstep {

namespace {

constexpr double no_limit = std::numeric_limits<double>::infinity();

}  // namespace

double available_cpus() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  double count = no_limit;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) count = CPU_COUNT(&cores);
  count = std::min(count, cgroup_cpu_quota());
  return count == no_limit ? std::max(1U, std::thread::hardware_concurrency()) : count;
}

long online_cpus() { return std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)); }

std::size_t available_cpu_count() {
  return std::max<std::size_t>(1, static_cast<std::size_t>(std::floor(available_cpus())));
}

}  // namespace lockstep
