// Chooses what a worker computes on: a GPU, or the CPU with a number of threads and an instruction set.
#pragma once

#include "backend/backend.hpp"
#include "cluster/world/world.hpp"
#include "collective/communicator.hpp"

#include <lockstep/training/options.hpp>

#include <memory>

namespace lockstep {

/// Collective: workers on CPUs agree on an instruction set. Throws UsageError for what the options or OMP_NUM_THREADS
/// ask for and this machine does not have.
[[nodiscard]] std::unique_ptr<Backend> choose_backend(const Options& options, const World& world,
                                                      Communicator& control);

}  // namespace lockstep
