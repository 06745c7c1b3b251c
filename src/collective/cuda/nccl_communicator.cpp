// See nccl_communicator.hpp.
#include "collective/cuda/nccl_communicator.hpp"

#include <array>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "core/clock.hpp"
#include "core/environment.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

constexpr double patience_at_the_end = 10;  // seconds for a ring to finish what nobody waits for

/// NCCL first tells the kernels that spin for a lost peer to leave the device, then waits until no recorded step holds
/// kernels of the ring, even where calls do not block. Recorded steps go with the error that follows: so this goes on
/// beside us.
void abort_beside(ncclComm_t ring) noexcept {
  try {
    std::thread([ring] { (void)ncclCommAbort(ring); }).detach();
  } catch (const std::system_error&) {
    // no thread to be had: the end of the process takes the kernels along
  }
}

}  // namespace

NcclCommunicator::NcclCommunicator(std::unique_ptr<Communicator> control, cuda::DeviceQueue& device)
    : DeviceCommunicator(std::move(control), device), policy_(WaitPolicy::of(current_environment(), 1)) {
  std::array<ncclUniqueId, 1> id{};
  if (rank() == 0) settle(ncclGetUniqueId(id.data()), "ncclGetUniqueId");
  broadcast(std::as_writable_bytes(std::span(id)), 0);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t ring = nullptr;
  const ncclResult_t status = ncclCommInitRankConfig(&ring, size(), id[0], rank(), &config);
  ring_.reset(ring);
  settle(status, "ncclCommInitRankConfig");
  queue().set_watch([this](double seconds) { watch(seconds); });
}

NcclCommunicator::~NcclCommunicator() { queue().set_watch({}); }

std::string NcclCommunicator::describe() const {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) version = NCCL_VERSION_CODE;
  return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100) + " (" + std::to_string(size()) + " GPUs)";
}

void NcclCommunicator::sum(std::size_t /*bucket*/, std::span<float> gradients) {
  settle(ncclAllReduce(gradients.data(), gradients.data(), gradients.size(), ncclFloat32, ncclSum, ring_.get(),
                       queue().communication()),
         "ncclAllReduce");
}

void NcclCommunicator::settle(ncclResult_t status, const char* call) {
  if (status != ncclSuccess && status != ncclInProgress) give_up(status, call);
  if (!ring_ || status == ncclSuccess) return;
  Patience patience(policy_);
  while (true) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(ring_.get(), &state);
    if (asked != ncclSuccess) give_up(asked, "ncclCommGetAsyncError");
    if (state == ncclSuccess) return;
    if (state != ncclInProgress) give_up(state, call);
    if (patience.pass()) patience.speak(std::string("the other GPUs to come to ") + call);
  }
}

void NcclCommunicator::watch(double seconds) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(ring_.get(), &state);
  if (asked != ncclSuccess) give_up(asked, "ncclCommGetAsyncError");
  if (state != ncclSuccess && state != ncclInProgress) give_up(state, "a sum over the GPUs");
  if (policy_.timeout <= 0 || seconds < policy_.timeout) return;
  abort_beside(ring_.release());
  throw PeerError("waited " + std::to_string(static_cast<int>(seconds)) +
                  " s in vain for a step of the other GPUs; see what they say themselves, or allow more time with "
                  "LOCKSTEP_COLLECTIVE_TIMEOUT=SECONDS");
}

void NcclCommunicator::give_up(ncclResult_t status, const std::string& where) {
  const std::string reason = where + " failed: " + ncclGetErrorString(status) +
                             "; NCCL says: " + ncclGetLastError(ring_.get()) + " (NCCL_DEBUG=INFO tells more)";
  if (ring_) abort_beside(ring_.release());
  if (status == ncclRemoteError || status == ncclSystemError) throw PeerError(reason);
  throw InternalError(reason);
}

void NcclCommunicator::EndRing::operator()(ncclComm_t ring) const noexcept {
  // While an exception leaves, the peers are elsewhere and would never join.
  ncclResult_t state = std::uncaught_exceptions() > 0 ? ncclInternalError : ncclCommFinalize(ring);
  const double start = monotonic_seconds();
  while (state == ncclInProgress && monotonic_seconds() - start < patience_at_the_end) {
    if (ncclCommGetAsyncError(ring, &state) != ncclSuccess) state = ncclInternalError;
  }
  if (state == ncclSuccess) {
    (void)ncclCommDestroy(ring);
  } else {
    abort_beside(ring);
  }
}

}  // namespace lockstep
