// What Open MPI must be told, through its environment, where nobody but Lockstep's launcher starts it. What PMIx itself
// needs comes from its server.
#pragma once

#include <string>

#include "cluster/pmix_messages.hpp"
#include "core/environment.hpp"

namespace lockstep {

/// What was found out about the place in which the ranks of a job will run.
struct TrainerPlace {
  double cores = 1;          ///< granted here, as granted_cores() tells
  double machine_cores = 1;  ///< of the whole machine
  bool single_copy = true;   ///< ranks may read each other's memory

  /// Asks the machine. Forks twice to try out the last: for processes without threads.
  [[nodiscard]] static TrainerPlace here();
};

/// What to add to `own`, the environment a launcher was started with. Whoever set an MCA parameter there knows better.
[[nodiscard]] Environment trainer_environment(const PmixJob& job, const TrainerPlace& place, const Environment& own);

/// `own` without what another launcher (mpirun, Slurm, an earlier generation) wrote there for its ranks, with `added`.
[[nodiscard]] Environment join_environments(const Environment& own, const Environment& added);

/// The name of the network interface that has this IP address; "" where none has.
[[nodiscard]] std::string interface_of(const std::string& address);

/// Does the kernel let a process read the memory of another one that this process started (process_vm_readv)?
[[nodiscard]] bool can_read_memory_of_siblings();

}  // namespace lockstep
