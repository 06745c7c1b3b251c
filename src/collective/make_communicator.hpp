// Chooses the communicator of a world.
#pragma once

#include <memory>

#include "cluster/world.hpp"
#include "collective/communicator.hpp"

namespace lockstep {

/// What carries gradients, as --communication names it.
enum class Transport {
  automatic,  ///< shared memory within hosts, MPI between them
  shared,     ///< shared memory alone
  mpi,        ///< MPI alone: every rank counts as a host of its own
  nccl,
};

/// Collective over the world, which must outlive the communicator. Throws UsageError where the transport does not fit:
/// shared memory for a world of several hosts, NCCL in a build without it.
[[nodiscard]] std::unique_ptr<Communicator> make_communicator(const World& world,
                                                              Transport transport = Transport::automatic);

}  // namespace lockstep
