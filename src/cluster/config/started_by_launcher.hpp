// Detects whether this process is a rank of a world, from the environment variables that mpirun, srun, `lockstep
// launch` and other launchers set.
#pragma once

#include "core/environment.hpp"

namespace lockstep {

/// True if a launcher (Open MPI, PMIx, PMI, or Slurm with an MPI plugin) started this process as a rank.
[[nodiscard]] bool started_by_launcher(const Environment& environment);

/// Throws UsageError if a launcher (Open MPI, Slurm with an MPI plugin, torchrun) started another number of processes
/// than the world has, as the mpirun of another MPI does: each of them would train alone. Trainers of `lockstep launch`
/// have its world, whatever they inherit.
void require_world_of_launcher(const Environment& environment, int size);

}  // namespace lockstep
