// See bare_start.hpp.
#include "cluster/bare_start.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cluster/child.hpp"
#include "cluster/cluster_spec.hpp"
#include "cluster/tf_config.hpp"
#include "cluster/world.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

/// As the kernel got them, without the program's name.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> arguments;
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find('\0', begin), all.size());
    arguments.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  if (!arguments.empty()) arguments.erase(arguments.begin());
  return arguments;
}

/// Beside this program, or where a shell would find it.
std::string find_lockstep(const std::filesystem::path& self, std::size_t workers, const Environment& environment) {
  const std::filesystem::path beside = self.parent_path() / "lockstep";
  if (access(beside.c_str(), X_OK) == 0) return beside.string();
  try {
    return find_program("lockstep", environment);
  } catch (const UsageError&) {
    throw UsageError("TF_CONFIG lists " + std::to_string(workers) +
                     " workers, and it takes the program lockstep to bring them together, which is neither in " +
                     self.parent_path().string() +
                     " nor on PATH; put it there, start all with mpirun, or unset TF_CONFIG to train alone");
  }
}

}  // namespace

void continue_in_launcher_if_bare(const Environment& environment) {
  if (environment.contains("LOCKSTEP_CONTROL_FD") || started_by_launcher(environment)) return;
  const ClusterSpec cluster = cluster_of(environment);
  if (cluster.workers() < 2) return;
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw InternalError("cannot read /proc/self/exe: " + error.message());
  const std::string lockstep = find_lockstep(self, cluster.workers(), environment);
  std::vector<std::string> words{"lockstep", "launch", "--", self.string()};
  for (std::string& argument : own_arguments()) words.push_back(std::move(argument));
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  (void)execv(lockstep.c_str(), pointers.data());
  throw UsageError("cannot run " + lockstep + ": " + std::generic_category().message(errno));
}

}  // namespace lockstep
