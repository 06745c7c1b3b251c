// Lets a training program start without mpirun or `lockstep launch`: with a TF_CONFIG of several workers, the program
// executes itself again under the launcher.
#pragma once

#include <cstddef>

#include "core/environment.hpp"

namespace lockstep {

/// Re-executes this program under `lockstep launch` if TF_CONFIG lists several workers and no launcher started this
/// process; does not return in that case. Throws UsageError for an invalid TF_CONFIG, and if the program `lockstep` is
/// missing.
void exec_launcher_if_needed(const Environment& environment);

/// Throws UsageError, naming the variable that made this process believe in a launcher, if TF_CONFIG lists more workers
/// than the world of a process that `lockstep launch` did not start: each of them would train alone.
void require_world_of_tf_config(const Environment& environment, std::size_t world_size);

}  // namespace lockstep
