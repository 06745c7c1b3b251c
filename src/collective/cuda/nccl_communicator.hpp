// All-reduces gradients between GPUs with NCCL, one rank per GPU. `control` only broadcasts the unique id.
//
// The NCCL communicator is non-blocking: every call may return "in progress" and is then awaited in a WaitLoop. While
// the host waits for the device, asynchronous errors and lost peers end the wait. On failure the communicator is
// aborted, so that kernels that spin for a lost peer leave the device. It must outlive all captured graphs of its
// all-reduces, since NCCL does not destroy a communicator before they are gone.
#pragma once

#include <nccl.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collective/cuda/device_communicator.hpp"
#include "collective/cuda/nccl_memory.hpp"
#include "collective/wait_loop.hpp"

namespace lockstep {

class NcclCommunicator final : public DeviceCommunicator {
 public:
  /// Collective. The current CUDA device must be this rank's own. `timeout`: see CommunicatorOptions. Throws PeerError
  /// or InternalError if NCCL does not start, perhaps on some ranks only.
  NcclCommunicator(std::unique_ptr<Communicator> control, cuda::DeviceStreams& device_streams, double timeout);

  [[nodiscard]] std::string describe() const override;

  ArenaMemory allocate(std::size_t gradient_elements, std::size_t mirrored_bytes, std::vector<Range> buckets) override;

 private:
  struct CommDeleter {
    void operator()(ncclComm_t comm) const noexcept;
  };

  void all_reduce(std::size_t bucket, std::span<float> gradients) override;

  void start(double timeout);
  /// Waits until the call that returned `status` is complete on this rank.
  void wait_until_complete(ncclResult_t status, const char* call, const WaitPolicy& policy);

  /// Throws if the NCCL communicator has failed, or if a wait of this many seconds has reached the timeout.
  void check_errors(double seconds);
  [[noreturn]] void abort_and_throw(ncclResult_t status, const std::string& where);

  WaitPolicy policy_;
  NcclMemory gradients_;  ///< empty where NCCL cannot allocate; outlives the communicator, which has registered it
  std::unique_ptr<ncclComm, CommDeleter> comm_;
  std::optional<cuda::DeviceStreams::WaitWatch> watch_;  ///< destroyed before the communicator
};

}  // namespace lockstep
