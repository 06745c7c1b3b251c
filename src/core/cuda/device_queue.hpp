// Where work for the device is enqueued: one stream computes, another carries sums between ranks and the updates that
// follow them, so that both overlap. Whoever wants a result waits here, and whoever knows of peers that may be lost
// watches over that waiting.
#pragma once

#include "core/cuda/memory.hpp"

#include <functional>

namespace lockstep::cuda {

class DeviceQueue {
 public:
  DeviceQueue() : compute_(make_stream()), communication_(make_stream()), event_(make_event()) {}

  [[nodiscard]] cudaStream_t compute() const noexcept { return compute_.get(); }
  [[nodiscard]] cudaStream_t communication() const noexcept { return communication_.get(); }

  /// Called every millisecond of a wait with the seconds waited so far; throws where waiting is in vain.
  void set_watch(std::function<void(double)> watch) { watch_ = std::move(watch); }

  /// Returns once the device has passed the event.
  void wait_for(cudaEvent_t event);

  /// Returns once everything enqueued on either stream is done.
  void finish();

 private:
  Stream compute_;
  Stream communication_;
  Event event_;
  std::function<void(double)> watch_;
};

/// What is enqueued on `second` from here on begins after what is enqueued on `first` now. `event` is used for it.
void order(cudaStream_t first, cudaStream_t second, cudaEvent_t event);

}  // namespace lockstep::cuda
