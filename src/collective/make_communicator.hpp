// Chooses the communicator of a world.
#pragma once

#include <functional>
#include <memory>

#include "cluster/world.hpp"
#include "collective/communicator.hpp"
#include "collective/compression.hpp"

namespace lockstep {

namespace cuda {
class DeviceQueue;
}

/// What carries gradients, as --communication names it.
enum class Transport {
  automatic,  ///< shared memory within hosts, MPI between them; between GPUs NCCL
  shared,     ///< shared memory alone
  mpi,        ///< MPI alone: every rank counts as a host of its own; gradients of a GPU go through the host
  nccl,       ///< between GPUs, one rank each
};

/// Collective over the world, which must outlive the communicator. Throws UsageError where the transport does not fit:
/// shared memory for a world of several hosts, NCCL without GPUs, or with GPUs that ranks share. With a `device` arenas
/// lie in its memory; it must outlive the communicator as well. `while_waiting`: see WaitPolicy. `compression` is for
/// gradients that the CPU sums, and only for those that leave a host.
[[nodiscard]] std::unique_ptr<Communicator> make_communicator(const World& world,
                                                              Transport transport = Transport::automatic,
                                                              cuda::DeviceQueue* device = nullptr,
                                                              std::function<void(bool)> while_waiting = {},
                                                              Compression compression = Compression::none);

/// The same for arenas on a device; where the library is built without CUDA nobody has one to ask for.
[[nodiscard]] std::unique_ptr<Communicator> make_device_communicator(const World& world, Transport transport,
                                                                     cuda::DeviceQueue& device,
                                                                     std::function<void(bool)> while_waiting);

}  // namespace lockstep
