// The control groups of this process, versions 1 and 2: the limits of a container, or of a service on a host.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Where the kernel shows control groups; tests pass others.
struct CgroupPlaces {
  std::filesystem::path root = "/sys/fs/cgroup";
  std::filesystem::path membership = "/proc/self/cgroup";
};

/// The directories of the groups that limit this process by a controller ("cpu", "memory"), its own group first, then
/// the ancestors. Directories that a container does not see are not there.
[[nodiscard]] std::vector<std::filesystem::path> cgroup_directories(const std::string& controller,
                                                                    const CgroupPlaces& places = {});

/// The lowest quota of all groups in CPUs; infinity without a quota.
[[nodiscard]] double cgroup_cpu_quota(const CgroupPlaces& places = {});

/// What the kernel reports about the memory of this process' group.
struct MemoryGroup {
  std::uint64_t oom_kills = 0;               ///< processes that it killed because memory was short
  std::optional<std::uint64_t> limit_bytes;  ///< the lowest of all groups
  std::optional<std::uint64_t> peak_bytes;   ///< the most that was ever in use
};

[[nodiscard]] MemoryGroup read_memory_group(const CgroupPlaces& places = {});

}  // namespace lockstep
