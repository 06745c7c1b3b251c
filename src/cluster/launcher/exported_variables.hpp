// The environment variables in which programs of other frameworks look for their world. `lockstep launch` sets them, so
// that such a program runs unchanged: PyTorch's env:// rendezvous, keras.distribution, jax.distributed.
#pragma once

#include <cstdint>
#include <string>

#include "cluster/rendezvous/placement.hpp"
#include "core/environment.hpp"

namespace lockstep {

/// The variables of one rank that replace those of an outer launcher. `master_address` is the host of rank 0, as the
/// ranks reach it.
[[nodiscard]] Environment world_variables(const Placement& placement, std::uint64_t rank,
                                          const std::string& master_address);

/// The variables that divide the cores of a machine between its ranks, unless the user has set them: each rank of a
/// framework would otherwise start a thread for every core. Empty for a rank alone on its machine.
[[nodiscard]] Environment thread_variables(const Placement& placement, std::uint64_t rank, double cores);

}  // namespace lockstep
