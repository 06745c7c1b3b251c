// See nccl_communicator.hpp.
#include "collective/cuda/nccl_communicator.hpp"

#include "core/clock.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace lockstep {

namespace {

constexpr double finalize_timeout_s = 10;  // for outstanding work at the end
constexpr double start_timeout_s = 60;     // then the ranks do without NCCL
constexpr double check_peers_every_s = 0.1;

/// Aborts on a separate thread. ncclCommAbort first makes kernels that spin for a lost peer leave the device, then
/// blocks until no captured graph holds kernels of the communicator. The graphs are destroyed by the error that the
/// caller throws next.
void abort_in_background(ncclComm_t comm) noexcept {
  try {
    std::thread([comm] { (void)ncclCommAbort(comm); }).detach();
  } catch (const std::system_error&) {
    // Without a thread, the end of the process removes the kernels.
  }
}

}  // namespace

NcclCommunicator::NcclCommunicator(std::unique_ptr<Communicator> control, cuda::DeviceStreams& device, double timeout,
                                   const std::vector<int>& host_of_rank)
    : DeviceCommunicator(std::move(control), device),
      policy_{.timeout = timeout},
      liveness_(watch_host(this->control(), host_of_rank)) {
  start(timeout > 0 ? std::min(timeout, start_timeout_s) : start_timeout_s);
  watch_.emplace(device_streams(), [this](double seconds) { check_errors(seconds); });
}

void NcclCommunicator::start(double timeout) {
  struct Invitation {
    ncclUniqueId id;
    ncclResult_t status;  ///< of making the id: all ranks learn of a failure
  };
  std::array<Invitation, 1> invitation{};
  if (rank() == 0) invitation[0].status = ncclGetUniqueId(&invitation[0].id);
  broadcast(std::as_writable_bytes(std::span(invitation)), 0);
  const WaitPolicy policy{.timeout = timeout};
  wait_until_complete(invitation[0].status, "ncclGetUniqueId", policy);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t status = ncclCommInitRankConfig(&comm, size(), invitation[0].id, rank(), &config);
  comm_.reset(comm);
  wait_until_complete(status, "ncclCommInitRankConfig", policy);
}

ArenaMemory NcclCommunicator::allocate(std::size_t gradient_elements, std::size_t mirrored_bytes,
                                       std::vector<Range> buckets) {
  const std::size_t bytes = gradient_elements * sizeof(float);
  gradients_ = allocate_for_nccl(bytes);
  if (!gradients_) return DeviceCommunicator::allocate(gradient_elements, mirrored_bytes, std::move(buckets));
  register_with_nccl(comm_.get(), gradients_.get(), bytes);
  return use_memory({reinterpret_cast<float*>(gradients_.get()), gradient_elements}, mirrored_bytes,
                    std::move(buckets));
}

std::string NcclCommunicator::describe() const {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) version = NCCL_VERSION_CODE;
  return fmt::format("NCCL {}.{}.{} ({} GPUs)", version / 10000, version / 100 % 100, version % 100, size());
}

void NcclCommunicator::all_reduce(std::size_t /*bucket*/, std::span<float> gradients) {
  wait_until_complete(ncclAllReduce(gradients.data(), gradients.data(), gradients.size(), ncclFloat32, ncclSum,
                                    comm_.get(), device_streams().communication()),
                      "ncclAllReduce", policy_);
}

void NcclCommunicator::wait_until_complete(ncclResult_t status, const char* call, const WaitPolicy& policy) {
  if (status != ncclSuccess && status != ncclInProgress) abort_and_throw(status, call);
  if (!comm_ || status == ncclSuccess) return;
  WaitLoop wait(policy);
  while (true) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t query = ncclCommGetAsyncError(comm_.get(), &state);
    if (query != ncclSuccess) abort_and_throw(query, "ncclCommGetAsyncError");
    if (state == ncclSuccess) return;
    if (state != ncclInProgress) abort_and_throw(state, call);
    check_peers(wait.seconds(), call);
    if (wait.pause()) wait.report(fmt::format("the other GPUs to join {}", call));
  }
}

void NcclCommunicator::check_errors(double seconds) {
  if (!comm_) return;  // it was aborted, and an error tells that
  ncclResult_t state = ncclSuccess;
  const ncclResult_t query = ncclCommGetAsyncError(comm_.get(), &state);
  if (query != ncclSuccess) abort_and_throw(query, "ncclCommGetAsyncError");
  if (state != ncclSuccess && state != ncclInProgress) abort_and_throw(state, "an all-reduce over the GPUs");
  check_peers(seconds, "a step of the GPUs");
  if (policy_.timeout <= 0 || seconds < policy_.timeout) return;
  abort_in_background(comm_.release());
  throw PeerError(
      fmt::format("timed out after {} s waiting for a step of the other GPUs; see their logs, or raise the "
                  "timeout with LOCKSTEP_COLLECTIVE_TIMEOUT=SECONDS",
                  static_cast<int>(seconds)));
}

void NcclCommunicator::check_peers(double seconds, const char* what) {
  if (!liveness_) return;
  const bool is_new_wait = seconds < peers_checked_at_;
  if (!is_new_wait && seconds - peers_checked_at_ < check_peers_every_s) return;
  peers_checked_at_ = seconds;
  const std::optional<int> lost = liveness_->find_lost_rank();
  if (!lost) return;
  if (comm_) abort_in_background(comm_.release());
  throw PeerError(fmt::format("rank {} ended while this rank waited for {}; see its log", *lost, what));
}

void NcclCommunicator::abort_and_throw(ncclResult_t status, const std::string& where) {
  const std::string reason = fmt::format("{} failed: {}; NCCL says: {} (NCCL_DEBUG=INFO logs more)", where,
                                         ncclGetErrorString(status), ncclGetLastError(comm_.get()));
  if (comm_) abort_in_background(comm_.release());
  if (status == ncclRemoteError || status == ncclSystemError) throw PeerError(reason);
  throw InternalError(reason);
}

void NcclCommunicator::CommDeleter::operator()(ncclComm_t comm) const noexcept {
  // While an exception propagates, the peers would not join ncclCommFinalize.
  ncclResult_t state = std::uncaught_exceptions() > 0 ? ncclInternalError : ncclCommFinalize(comm);
  const double start = monotonic_seconds();
  while (state == ncclInProgress && monotonic_seconds() - start < finalize_timeout_s) {
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) state = ncclInternalError;
  }
  if (state == ncclSuccess) {
    (void)ncclCommDestroy(comm);
  } else {
    abort_in_background(comm);
  }
}

}  // namespace lockstep
