// Chooses the communicator of a world.
#pragma once

#include <memory>

#include "cluster/world/world.hpp"
#include "collective/communicator.hpp"
#include "collective/communicator_options.hpp"

namespace lockstep {

/// Collective over the world, which must outlive the communicator. Throws UsageError if the options do not fit the
/// world: shared memory across hosts, compression of gradients on GPUs, NCCL without GPUs or with GPUs that ranks
/// share.
[[nodiscard]] std::unique_ptr<Communicator> make_communicator(const World& world,
                                                              const CommunicatorOptions& options = {});

/// As make_communicator(), for arenas on `options.device`. Throws InternalError in builds without CUDA.
[[nodiscard]] std::unique_ptr<Communicator> make_device_communicator(const World& world,
                                                                     const CommunicatorOptions& options);

}  // namespace lockstep
