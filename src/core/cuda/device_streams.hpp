// A device's two streams: one computes, the other runs all-reduces and the updates that follow them, so that both
// overlap. The host waits for results only here; during a wait, a communicator's callback may look for lost peers.
#pragma once

#include "core/cuda/memory.hpp"

#include <functional>

namespace lockstep::cuda {

class DeviceStreams {
 public:
  DeviceStreams() : compute_(make_stream()), communication_(make_stream()), event_(make_event()) {}

  [[nodiscard]] cudaStream_t compute() const noexcept { return compute_.get(); }
  [[nodiscard]] cudaStream_t communication() const noexcept { return communication_.get(); }

  /// Sets a function that is called every millisecond of a wait with the seconds waited so far. It may throw to end the
  /// wait, e.g. when a peer is lost.
  void set_wait_callback(std::function<void(double)> callback) { wait_callback_ = std::move(callback); }

  /// Blocks until the event has completed.
  void wait_for(cudaEvent_t event);

  /// Blocks until everything enqueued on either stream has completed.
  void synchronize();

 private:
  Stream compute_;
  Stream communication_;
  Event event_;
  std::function<void(double)> wait_callback_;
};

/// Makes later work on `second` wait for the work enqueued on `first` so far. Records `event`.
void order_streams(cudaStream_t first, cudaStream_t second, cudaEvent_t event);

}  // namespace lockstep::cuda
