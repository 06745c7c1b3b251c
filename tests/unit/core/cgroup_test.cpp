// Limits of control groups, in trees that a test writes.
#include "core/cgroup.hpp"

#include "support/catch.hpp"
#include "support/scratch_directory.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

struct Tree {
  ScratchDirectory scratch;
  CgroupPlaces places{scratch / "cgroup", scratch / "membership"};

  explicit Tree(const std::string& membership) {
    std::filesystem::create_directories(places.root);
    std::ofstream(places.membership) << membership;
  }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((places.root / file).parent_path());
    std::ofstream(places.root / file) << text;
  }
};

}  // namespace

TEST_CASE("the lowest CPU quota of the own group and its ancestors counts") {
  const Tree two("0::/kubepods/pod7/box\n");
  CHECK(std::isinf(cgroup_cpu_quota(two.places)));
  two.write("kubepods/cpu.max", "400000 100000\n");
  CHECK(cgroup_cpu_quota(two.places) == 4);
  two.write("kubepods/pod7/box/cpu.max", "50000 100000\n");
  CHECK(cgroup_cpu_quota(two.places) == 0.5);
  two.write("kubepods/pod7/cpu.max", "max 100000\n");
  two.write("kubepods/pod8/cpu.max", "1000 100000\n");  // another group
  CHECK(cgroup_cpu_quota(two.places) == 0.5);

  const Tree one("5:memory:/docker/box\n4:cpu,cpuacct:/docker/box\n0::/ignored\n");
  one.write("cpu,cpuacct/docker/box/cpu.cfs_quota_us", "150000\n");
  one.write("cpu,cpuacct/docker/box/cpu.cfs_period_us", "100000\n");
  one.write("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  one.write("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  CHECK(cgroup_cpu_quota(one.places) == 1.5);
}

TEST_CASE("a container that sees only its own group as the root finds its limits") {
  const Tree two("0::/\n");
  two.write("cpu.max", "150000 100000\n");
  CHECK(cgroup_cpu_quota(two.places) == 1.5);
  const Tree one("4:cpu:/docker/not-visible-here\n");
  one.write("cpu/cpu.cfs_quota_us", "50000\n");
  one.write("cpu/cpu.cfs_period_us", "100000\n");
  CHECK(cgroup_cpu_quota(one.places) == 0.5);
}

TEST_CASE("kills for memory are counted in the own group, the limit is the lowest") {
  const Tree two("0::/pod/box\n");
  CHECK(read_memory_group(two.places).oom_kills == 0);
  two.write("pod/box/memory.events", "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\n");
  two.write("pod/box/memory.max", "max\n");
  two.write("pod/box/memory.peak", "60000000\n");
  two.write("pod/memory.events", "oom_kill 9\n");
  two.write("pod/memory.max", "67108864\n");
  const MemoryGroup found = read_memory_group(two.places);
  CHECK(found.oom_kills == 2);
  CHECK(found.limit_bytes == 67108864);
  CHECK(found.peak_bytes == 60000000);

  const Tree one("3:memory:/box\n");
  one.write("memory/box/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  one.write("memory/box/memory.limit_in_bytes", "1000000\n");
  one.write("memory/box/memory.max_usage_in_bytes", "999999\n");
  one.write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  const MemoryGroup old = read_memory_group(one.places);
  CHECK(old.oom_kills == 1);
  CHECK(old.limit_bytes == 1000000);
  CHECK(old.peak_bytes == 999999);
}
