// Programs that are started bare, as Kubernetes' templates do it, with a TF_CONFIG that lists several workers.
#pragma once

#include "core/environment.hpp"

namespace lockstep {

/// Executes this program anew through `lockstep launch`, and does not return, where TF_CONFIG lists several workers and
/// nobody has made this process part of a world. Throws UsageError for a TF_CONFIG that cannot be followed, and where
/// there is no `lockstep`.
void continue_in_launcher_if_bare(const Environment& environment);

}  // namespace lockstep
