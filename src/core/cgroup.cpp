// See cgroup.hpp.
#include "core/cgroup.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace lockstep {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t unlimited = std::uint64_t{1} << 62U;  // version 1 writes about 2^63

bool lists(const std::string& controllers, const std::string& controller) {
  std::istringstream words(controllers);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == controller) return true;
  }
  return false;
}

/// Appends base/group and its ancestors up to `base`, as far as they exist.
void add_with_ancestors(const fs::path& base, const fs::path& group, std::vector<fs::path>& found) {
  std::error_code ignored;
  for (fs::path part = group.relative_path(); !part.empty(); part = part.parent_path()) {
    if (fs::is_directory(base / part, ignored)) found.push_back(base / part);
  }
  if (fs::is_directory(base, ignored)) found.push_back(base);
}

std::optional<std::uint64_t> read_number(const fs::path& file) {
  std::uint64_t number = 0;
  if (std::ifstream(file) >> number && number < unlimited) return number;  // "max" means unlimited and is no number
  return {};
}

/// The value after `key` in a file of lines "key value".
std::optional<std::uint64_t> read_entry(const fs::path& file, const std::string& key) {
  std::ifstream lines(file);
  std::string word;
  std::uint64_t number = 0;
  while (lines >> word >> number) {
    if (word == key) return number;
  }
  return {};
}

}  // namespace

std::vector<fs::path> cgroup_directories(const std::string& controller, const CgroupPlaces& places) {
  std::vector<fs::path> found;
  std::ifstream lines(places.membership);
  for (std::string line; std::getline(lines, line);) {  // "4:cpu,cpuacct:/group", in version 2 "0::/group"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      add_with_ancestors(places.root, group, found);
    } else if (lists(controllers, controller)) {
      add_with_ancestors(places.root / controllers, group, found);
      if (controllers != controller) add_with_ancestors(places.root / controller, group, found);
    }
  }
  return found;
}

double cgroup_cpu_quota(const CgroupPlaces& places) {
  double lowest = std::numeric_limits<double>::infinity();
  for (const fs::path& group : cgroup_directories("cpu", places)) {
    double quota = 0;
    double period = 0;
    const bool is_limited =
        (std::ifstream(group / "cpu.max") >> quota >> period) ||
        (std::ifstream(group / "cpu.cfs_quota_us") >> quota && std::ifstream(group / "cpu.cfs_period_us") >> period);
    if (is_limited && quota > 0 && period > 0) lowest = std::min(lowest, quota / period);
  }
  return lowest;
}

MemoryGroup read_memory_group(const CgroupPlaces& places) {
  MemoryGroup memory;
  bool is_own = true;
  for (const fs::path& group : cgroup_directories("memory", places)) {
    for (const char* name : {"memory.max", "memory.limit_in_bytes"}) {
      const std::optional<std::uint64_t> limit = read_number(group / name);
      if (limit && (!memory.limit_bytes || *limit < *memory.limit_bytes)) memory.limit_bytes = limit;
    }
    auto kills = read_entry(group / "memory.events", "oom_kill");
    if (!kills) kills = read_entry(group / "memory.oom_control", "oom_kill");
    if (!is_own || !kills) continue;
    is_own = false;  // the counters of ancestors hold other processes' too
    memory.oom_kills = *kills;
    memory.peak_bytes = read_number(group / "memory.peak");
    if (!memory.peak_bytes) memory.peak_bytes = read_number(group / "memory.max_usage_in_bytes");
  }
  return memory;
}

}  // namespace lockstep
