// Chooses the communicator for gradients in GPU memory.
#include "collective/cuda/host_staged_communicator.hpp"
#include "collective/cuda/nccl_communicator.hpp"
#include "collective/first_problem.hpp"
#include "collective/make_communicator.hpp"
#include "core/environment.hpp"
#include "core/log.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

/// Collective: true if two ranks of a host use the same GPU, which NCCL does not support. NCCL treats ranks with
/// different NCCL_HOSTID as ranks of different hosts, which tests use to run several ranks on one GPU.
bool ranks_share_a_gpu(const World& world, Communicator& control) {
  int device = 0;
  cuda::check(cudaGetDevice(&device), "cudaGetDevice");
  std::array<char, 32> bus{};
  cuda::check(cudaDeviceGetPCIBusId(bus.data(), bus.size(), device), "cudaDeviceGetPCIBusId");
  const int host = world.host_of_rank()[static_cast<std::size_t>(world.rank())];
  std::vector<std::string> all =
      control.all_gather(fmt::format("{} {} {}", host, bus.data(), value_of(current_environment(), "NCCL_HOSTID")));
  std::sort(all.begin(), all.end());
  return std::adjacent_find(all.begin(), all.end()) != all.end();
}

/// Collective: null if NCCL does not start on some rank. `why` then says so.
std::unique_ptr<Communicator> try_nccl(const World& world, const CommunicatorOptions& host_options,
                                       const CommunicatorOptions& options, Communicator& control, std::string& why) {
  // Between hosts NCCL would register the buffers of captured all-reduces with the network, unless a user asks
  // otherwise.
  if (world.hosts() > 1) (void)setenv("NCCL_GRAPH_REGISTER", "0", 0);
  std::unique_ptr<Communicator> nccl;
  std::string problem;
  std::unique_ptr<Communicator> control_of_nccl = make_communicator(world, host_options);
  try {
    nccl = std::make_unique<NcclCommunicator>(std::move(control_of_nccl), *options.device, options.timeout,
                                              world.host_of_rank());
  } catch (const Error& error) {
    problem = error.what();
  }
  const std::optional<RankProblem> first = first_problem(control, problem);
  if (!first) return nccl;
  why = fmt::format("NCCL does not start on rank {}: {}", first->rank, first->what);
  return nullptr;
}

}  // namespace

std::unique_ptr<Communicator> make_device_communicator(const World& world, const CommunicatorOptions& options) {
  if (options.communication == Communication::shared) {
    throw UsageError("--communication shared needs gradients in host memory; with --device cuda use auto, nccl or mpi");
  }
  cuda::DeviceStreams& device = *options.device;
  CommunicatorOptions host_options = options;
  host_options.device = nullptr;
  host_options.communication = Communication::automatic;
  std::unique_ptr<Communicator> control = make_communicator(world, host_options);
  if (world.size() == 1) return std::make_unique<DeviceCommunicator>(std::move(control), device);
  if (options.communication != Communication::mpi) {
    const bool must_share = ranks_share_a_gpu(world, *control);
    std::string why = "ranks share a GPU, which NCCL does not support";
    if (!must_share) {
      if (auto nccl = try_nccl(world, host_options, options, *control, why)) return nccl;
    }
    if (options.communication == Communication::nccl) {
      if (must_share) throw UsageError(why + "; start one rank per GPU, or use --communication mpi");
      throw PeerError(why + "; --communication mpi does without it");
    }
    if (world.is_chief()) {
      log_warning(why + "; gradients are all-reduced through host memory" +
                  (must_share ? "; start one rank per GPU" : ""));
    }
  }
  host_options.communication = Communication::mpi;
  return std::make_unique<HostStagedCommunicator>(std::move(control), make_communicator(world, host_options), device);
}

}  // namespace lockstep
