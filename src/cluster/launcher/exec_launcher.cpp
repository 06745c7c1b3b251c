// See exec_launcher.hpp.
#include "cluster/launcher/exec_launcher.hpp"

#include "cluster/config/cluster_spec.hpp"
#include "cluster/config/started_by_launcher.hpp"
#include "cluster/config/strategy_variable.hpp"
#include "cluster/config/task_options.hpp"
#include "cluster/config/tf_config.hpp"
#include "cluster/launcher/trainer_process.hpp"
#include "cluster/net/quote.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
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

namespace lockstep {

namespace {

/// The command line of this process, without the program name.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> arguments;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\0', begin), text.size());
    arguments.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (!arguments.empty()) arguments.erase(arguments.begin());
  return arguments;
}

/// The program `lockstep` next to this program, or on PATH.
std::string find_lockstep(const std::filesystem::path& self, std::size_t workers, const Environment& environment) {
  const std::filesystem::path beside = self.parent_path() / "lockstep";
  if (access(beside.c_str(), X_OK) == 0) return beside.string();
  try {
    return find_program("lockstep", environment);
  } catch (const UsageError&) {
    throw UsageError(
        fmt::format("TF_CONFIG lists {} workers, but the program lockstep, which launches them, is neither in {} nor "
                    "on PATH; install it there, start all workers with mpirun, or unset TF_CONFIG to train alone",
                    workers, self.parent_path().string()));
  }
}

}  // namespace

void require_world_of_tf_config(const Environment& environment, std::size_t world_size) {
  const std::size_t workers = read_cluster_spec(environment).workers();
  if (workers <= world_size) return;
  std::string found = "a variable of another launcher";
  // MPI_Init sets PMIX_RANK, so it comes last.
  for (const char* name : {"LOCKSTEP_CONTROL_FD", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "SLURM_PROCID", "PMIX_RANK"}) {
    if (!environment.contains(name)) continue;
    found = fmt::format("{}={}", name, quote(value_of(environment, name)));
    break;
  }
  throw UsageError(
      fmt::format("TF_CONFIG lists {} workers, but this process is in a world of {}, because {} says that a launcher "
                  "started it; unset that variable, or start as many processes as TF_CONFIG lists",
                  workers, world_size, found));
}

void exec_launcher_if_needed(const Environment& environment) {
  if (environment.contains("LOCKSTEP_CONTROL_FD") || started_by_launcher(environment)) return;
  Environment with_strategy = environment;
  take_strategy(own_arguments(), with_strategy);
  const ClusterSpec cluster = read_cluster_spec(with_strategy);
  if (cluster.workers() + cluster.servers.size() < 2) return;
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw InternalError(fmt::format("cannot read /proc/self/exe: {}", error.message()));
  const std::string lockstep = find_lockstep(self, cluster.workers(), environment);
  std::vector<std::string> words{"lockstep", "launch", "--", self.string()};
  std::vector<std::string> arguments = own_arguments();
  Environment described;  // has TF_CONFIG already
  (void)take_task_options(arguments, described);
  for (std::string& argument : arguments) words.push_back(std::move(argument));
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  (void)execv(lockstep.c_str(), pointers.data());
  throw UsageError(fmt::format("cannot run {}: {}", lockstep, std::generic_category().message(errno)));
}

}  // namespace lockstep
