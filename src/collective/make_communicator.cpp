// See make_communicator.hpp.
#include "collective/make_communicator.hpp"

#include "collective/hierarchical_communicator.hpp"
#include "collective/single_rank_communicator.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <memory>
#include <numeric>
#include <vector>

namespace lockstep {

std::unique_ptr<Communicator> make_communicator(const World& world, const CommunicatorOptions& options) {
  if (options.device != nullptr && options.compression != GradientCompression::none) {
    throw UsageError(
        "--gradient-compression applies to gradients all-reduced on CPUs, and this run computes on a GPU; use none");
  }
  if (options.device != nullptr) return make_device_communicator(world, options);
  if (options.communication == Communication::nccl) {
    throw UsageError("NCCL needs GPUs, and this run uses none; use --communication auto, shared or mpi");
  }
  if (options.communication == Communication::shared && world.hosts() > 1) {
    throw UsageError(fmt::format(
        "--communication shared needs all workers on one host, and these are on {}; use auto or mpi", world.hosts()));
  }
  if (world.size() == 1) return std::make_unique<SingleRankCommunicator>();
  std::vector<int> hosts = world.host_of_rank();
  if (options.communication == Communication::mpi) std::iota(hosts.begin(), hosts.end(), 0);
  return std::make_unique<HierarchicalCommunicator>(hosts, options);
}

}  // namespace lockstep
