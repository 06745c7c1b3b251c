// All-reduces gradients of GPUs with MPI through host memory, for ranks that share a GPU or cannot use NCCL. The host
// waits for each bucket, so steps cannot be captured.
#pragma once

#include <vector>

#include "collective/cuda/device_communicator.hpp"

namespace lockstep {

class HostStagedCommunicator final : public DeviceCommunicator {
 public:
  /// `host` must give every rank whole buckets (Communication::mpi).
  HostStagedCommunicator(std::unique_ptr<Communicator> control, std::unique_ptr<Communicator> host,
                         cuda::DeviceStreams& device_streams);

  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] bool is_graph_capturable() const noexcept override { return false; }

  ArenaMemory allocate(std::size_t gradient_elements, std::size_t mirrored_bytes, std::vector<Range> buckets) override;

 private:
  void all_reduce(std::size_t bucket, std::span<float> gradients) override;

  std::unique_ptr<Communicator> host_communicator_;
  std::span<float> host_gradients_;
  std::vector<float> host_sum_;  ///< the sum, if the host communicator returns several sources
  cuda::Event copied_;
};

}  // namespace lockstep
