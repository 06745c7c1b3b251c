// All-reduces gradients between GPUs with NCCL, one rank per GPU. `control` only broadcasts the unique id.
//
// The NCCL communicator is non-blocking: every call may return "in progress" and is then awaited in a WaitLoop. While
// the host waits for the device, asynchronous errors and lost peers end the wait. NCCL reports peers whose connection
// breaks; those over NVLink have none, so the host watches their processes (HostLiveness). On failure the communicator
// is aborted, so that kernels that spin for a lost peer leave the device. It must outlive all captured graphs of its
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
#include "collective/host_liveness.hpp"
#include "collective/wait_loop.hpp"

namespace lockstep {

class NcclCommunicator final : public DeviceCommunicator {
 public:
  /// Collective. The current CUDA device must be this rank's own. `timeout`: see CommunicatorOptions. Throws PeerError
  /// or InternalError if NCCL does not start, perhaps on some ranks only.
  NcclCommunicator(std::unique_ptr<Communicator> control, cuda::DeviceStreams& device_streams, double timeout,
                   const std::vector<int>& host_of_rank);

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

  /// Throws if the NCCL communicator has failed, if a peer is lost, or if a wait of this many seconds has reached the
  /// timeout.
  void check_errors(double seconds);
  /// Throws if a peer of this host is lost. Looks at most every 0.1 s of a wait.
  void check_peers(double seconds, const char* what);
  [[noreturn]] void abort_and_throw(ncclResult_t status, const std::string& where);

  WaitPolicy policy_;
  std::unique_ptr<HostLiveness> liveness_;  ///< null without other ranks on this host
  double peers_checked_at_ = 0;             ///< seconds into the wait
  NcclMemory gradients_;  ///< empty where NCCL cannot allocate; outlives the communicator, which has registered it
  std::unique_ptr<ncclComm, CommDeleter> comm_;
  std::optional<cuda::DeviceStreams::WaitWatch> watch_;  ///< destroyed before the communicator
};

}  // namespace lockstep
