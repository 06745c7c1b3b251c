// See make_communicator.hpp.
#include "collective/make_communicator.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "collective/hybrid_communicator.hpp"
#include "collective/local_communicator.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

std::unique_ptr<Communicator> make_communicator(const World& world, Transport transport, cuda::DeviceQueue* device,
                                                std::function<void(bool)> while_waiting, Compression compression) {
  if (device != nullptr && compression != Compression::none) {
    throw UsageError("--gradient-compression is for gradients that CPUs sum, and this run computes on a GPU; use none");
  }
  if (device != nullptr) return make_device_communicator(world, transport, *device, std::move(while_waiting));
  if (transport == Transport::nccl) {
    throw UsageError("NCCL sums on GPUs, and this run has none; use --communication auto, shared or mpi");
  }
  if (transport == Transport::shared && world.hosts() > 1) {
    throw UsageError("--communication shared needs all workers on one host, and these are on " +
                     std::to_string(world.hosts()) + "; use auto or mpi");
  }
  if (world.size() == 1) return std::make_unique<LocalCommunicator>();
  std::vector<int> hosts = world.host_of_rank();
  if (transport == Transport::mpi) std::iota(hosts.begin(), hosts.end(), 0);
  return std::make_unique<HybridCommunicator>(hosts, std::move(while_waiting), compression);
}

}  // namespace lockstep
