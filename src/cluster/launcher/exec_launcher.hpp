// Lets a training program start without mpirun or `lockstep launch`: with a TF_CONFIG of several workers, the program
// executes itself again under the launcher.
#pragma once

#include "core/environment.hpp"

namespace lockstep {

/// Re-executes this program under `lockstep launch` if TF_CONFIG lists several workers and no launcher started this
/// process; does not return in that case. Throws UsageError for an invalid TF_CONFIG, and if the program `lockstep` is
/// missing.
void exec_launcher_if_needed(const Environment& environment);

}  // namespace lockstep
