// See started_by_launcher.hpp.
#include "cluster/config/started_by_launcher.hpp"

#include <string>

namespace lockstep {

bool started_by_launcher(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"}) {
    if (environment.contains(name)) return true;
  }
  // Without an MPI plugin srun starts independent processes, each of which is a world of one.
  const std::string plugin = value_of(environment, "SLURM_MPI_TYPE");
  return environment.contains("SLURM_PROCID") && !plugin.empty() && plugin != "none";
}

}  // namespace lockstep
