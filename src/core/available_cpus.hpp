// How many CPUs this process may use.
#pragma once

#include <cstddef>

namespace lockstep {

/// CPUs this process may use (affinity and cgroup quota). May be fractional, even below one.
[[nodiscard]] double available_cpus();

/// `available_cpus()` rounded down, at least one.
[[nodiscard]] std::size_t available_cpu_count();

/// CPUs of this machine, whether this process may use them or not.
[[nodiscard]] long online_cpus();

}  // namespace lockstep
