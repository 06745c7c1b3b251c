// Gradients summed by NCCL between GPUs, one rank each. MPI (or whatever `control` is) only carries the unique id.
//
// The NCCL communicator is a non-blocking one: every call may answer "in progress" and is then waited for with patience
// and a limit, and while the host waits for the device, asynchronous errors and lost peers end the wait. On failure it
// is aborted, so that kernels which spin for a lost peer leave the device. It must outlive all recordings of its sums:
// NCCL ends no communicator before they are gone.
#pragma once

#include <nccl.h>

#include "collective/cuda/device_communicator.hpp"
#include "collective/patience.hpp"

namespace lockstep {

class NcclCommunicator final : public DeviceCommunicator {
 public:
  /// Collective. The current CUDA device must be this rank's own.
  NcclCommunicator(std::unique_ptr<Communicator> control, cuda::DeviceQueue& queue);
  ~NcclCommunicator() override;

  [[nodiscard]] std::string describe() const override;

 private:
  struct EndRing {
    void operator()(ncclComm_t ring) const noexcept;
  };

  void sum(std::size_t bucket, std::span<float> gradients) override;

  /// Waits until the call, which answered `status`, is done on this rank.
  void settle(ncclResult_t status, const char* call);

  /// Throws where the ring has failed, or a wait of so many seconds is in vain.
  void watch(double seconds);
  [[noreturn]] void give_up(ncclResult_t status, const std::string& where);

  WaitPolicy policy_;
  std::unique_ptr<ncclComm, EndRing> ring_;
};

}  // namespace lockstep
