// See started_by_launcher.hpp.
#include "cluster/config/started_by_launcher.hpp"

#include "core/parse_number.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <string>
#include <vector>

namespace lockstep {

namespace {

/// Without an MPI plugin srun starts independent processes, each of which is a world of one.
bool is_started_by_srun(const Environment& environment) {
  const std::string plugin = value_of(environment, "SLURM_MPI_TYPE");
  return environment.contains("SLURM_PROCID") && !plugin.empty() && plugin != "none";
}

bool is_started_by_torchrun(const Environment& environment) {
  return environment.contains("RANK") && environment.contains("MASTER_ADDR");
}

}  // namespace

bool started_by_launcher(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"}) {
    if (environment.contains(name)) return true;
  }
  return is_started_by_srun(environment);
}

void require_world_of_launcher(const Environment& environment, int size) {
  if (environment.contains("LOCKSTEP_CONTROL_FD")) return;
  std::vector<const char*> names{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
  // A world of Open MPI's mpirun may lie within a task of one of these.
  if (!environment.contains(names.front())) {
    if (is_started_by_srun(environment)) names.push_back("SLURM_STEP_NUM_TASKS");
    if (is_started_by_torchrun(environment)) names.push_back("WORLD_SIZE");
  }
  for (const char* name : names) {
    const auto started = parse_number<int>(value_of(environment, name));
    if (!started || *started == size) continue;
    throw UsageError(
        fmt::format("{} is {}, but this program's world has {} process{}; start it with Open MPI's launcher or with "
                    "`lockstep launch`, or unset {} to train alone",
                    name, *started, size, size == 1 ? "" : "es", name));
  }
}

}  // namespace lockstep
