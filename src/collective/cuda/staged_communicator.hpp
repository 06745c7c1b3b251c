// Gradients of GPUs summed by MPI through the host's memory: where ranks share a GPU, or NCCL finds no way. The host
// waits for each bucket, so steps are not recorded.
#pragma once

#include <vector>

#include "collective/cuda/device_communicator.hpp"

namespace lockstep {

class StagedCommunicator final : public DeviceCommunicator {
 public:
  /// `host` gives every rank whole buckets (Transport::mpi).
  StagedCommunicator(std::unique_ptr<Communicator> control, std::unique_ptr<Communicator> host,
                     cuda::DeviceQueue& queue);

  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] bool only_enqueues() const noexcept override { return false; }

  ArenaMemory allocate(std::size_t gradient_elements, std::size_t mirrored_bytes,
                       std::vector<BucketRange> buckets) override;

 private:
  void sum(std::size_t bucket, std::span<float> gradients) override;

  std::unique_ptr<Communicator> host_;
  std::span<float> staged_;
  std::vector<float> sum_;  ///< where the host's communicator leaves the sum to its user
  cuda::Event copied_;
};

}  // namespace lockstep
