// The environment variables with which the launcher configures Open MPI. Those that PMIx needs come from its server.
#pragma once

#include <string>

#include "cluster/pmix/pmix_messages.hpp"
#include "core/environment.hpp"

namespace lockstep {

/// The resources of the host on which the ranks of a job run.
struct HostResources {
  double cores = 1;          ///< available_cpus()
  double machine_cores = 1;  ///< CPUs of the whole machine
  bool single_copy = true;   ///< ranks may read each other's memory (process_vm_readv)

  /// Inspects the host. Forks twice to test single_copy, so the process must have no threads.
  [[nodiscard]] static HostResources detect();
};

/// The variables to add to `own`, the environment of the launcher. MCA parameters that are set in `own` take
/// precedence.
[[nodiscard]] Environment trainer_environment(const PmixJob& job, const HostResources& host, const Environment& own);

/// Whether another launcher may set this variable for a trainer here: what MPI and PMIx read, and no variable by which
/// a peer could make a trainer run other code (LD_PRELOAD, PATH).
[[nodiscard]] bool may_be_sent(const std::string& variable);

/// Merges `own` and `added`, without the variables that another launcher (mpirun, Slurm, an earlier generation) set for
/// its ranks.
[[nodiscard]] Environment join_environments(const Environment& own, const Environment& added);

/// True if the kernel lets processes that this process started read each other's memory (process_vm_readv).
[[nodiscard]] bool can_read_memory_of_siblings();

}  // namespace lockstep
