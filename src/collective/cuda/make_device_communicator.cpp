// Chooses how gradients in GPUs' memory are summed.
#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collective/cuda/nccl_communicator.hpp"
#include "collective/cuda/staged_communicator.hpp"
#include "collective/make_communicator.hpp"
#include "core/environment.hpp"
#include "core/log.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

/// True if two ranks of a host compute on the same GPU, which NCCL refuses. It takes ranks with different NCCL_HOSTID
/// for ranks of different hosts, so that tests can have rings on one GPU. Collective.
bool ranks_share_a_gpu(const World& world, Communicator& control) {
  int device = 0;
  cuda::check(cudaGetDevice(&device), "cudaGetDevice");
  std::array<char, 32> bus{};
  cuda::check(cudaDeviceGetPCIBusId(bus.data(), bus.size(), device), "cudaDeviceGetPCIBusId");
  const std::string host = std::to_string(world.host_of_rank()[static_cast<std::size_t>(world.rank())]);
  const std::string own = host + " " + std::string(bus.data()) + " " + value_of(current_environment(), "NCCL_HOSTID");
  std::vector<std::string> all = control.all_gather(own);
  std::sort(all.begin(), all.end());
  return std::adjacent_find(all.begin(), all.end()) != all.end();
}

}  // namespace

std::unique_ptr<Communicator> make_device_communicator(const World& world, Transport transport,
                                                       cuda::DeviceQueue& device,
                                                       std::function<void(bool)> while_waiting) {
  if (transport == Transport::shared) {
    throw UsageError("--communication shared sums in the host's memory; with --device cuda use auto, nccl or mpi");
  }
  std::unique_ptr<Communicator> control = make_communicator(world, Transport::automatic, nullptr, while_waiting);
  if (world.size() == 1) return std::make_unique<DeviceCommunicator>(std::move(control), device);
  if (transport != Transport::mpi) {
    if (!ranks_share_a_gpu(world, *control)) return std::make_unique<NcclCommunicator>(std::move(control), device);
    const std::string reason = "ranks share a GPU, which NCCL refuses";
    if (transport == Transport::nccl) throw UsageError(reason + "; start one a GPU, or use --communication mpi");
    if (world.is_chief()) log_warning(reason + ": gradients go through the host's memory; start one rank a GPU");
  }
  return std::make_unique<StagedCommunicator>(
      std::move(control), make_communicator(world, Transport::mpi, nullptr, std::move(while_waiting)), device);
}

}  // namespace lockstep
