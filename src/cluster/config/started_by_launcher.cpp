// See started_by_launcher.hpp.
#include "cluster/config/started_by_launcher.hpp"

#include "core/parse_number.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
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

void require_world_of_launcher(const Environment& environment, int size) {
  if (environment.contains("LOCKSTEP_CONTROL_FD")) return;
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const auto started = parse_number<int>(value_of(environment, name));
    if (!started || *started == size) continue;
    throw UsageError(
        fmt::format("{} is {}, but Open MPI's world has {} process{}; start the program with Open MPI's launcher or "
                    "with `lockstep launch`, or unset {} to train alone",
                    name, *started, size, size == 1 ? "" : "es", name));
  }
}

}  // namespace lockstep
