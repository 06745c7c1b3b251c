// A device's two streams: one computes, the other runs all-reduces and the updates that follow them, so that both
// overlap. The host waits for results only here; during a wait, the callbacks of communicators may look for lost peers.
#pragma once

#include "core/cuda/memory.hpp"

#include <functional>
#include <list>
#include <utility>

namespace lockstep::cuda {

class DeviceStreams {
 public:
  /// Gets the seconds that a wait has taken so far. It may throw to end the wait, e.g. when a peer is lost.
  using WaitCallback = std::function<void(double)>;

  /// Communication goes first where both streams have work: other ranks wait for it.
  DeviceStreams() : compute_(make_stream()), communication_(make_stream(StreamPriority::high)), event_(make_event()) {}

  [[nodiscard]] cudaStream_t compute() const noexcept { return compute_.get(); }
  [[nodiscard]] cudaStream_t communication() const noexcept { return communication_.get(); }

  /// Calls the callback every millisecond of each wait, until this object is destroyed. It must not outlive the
  /// streams.
  class WaitWatch {
   public:
    WaitWatch(DeviceStreams& streams, WaitCallback callback)
        : callbacks_(streams.wait_callbacks_), place_(callbacks_.insert(callbacks_.end(), std::move(callback))) {}
    ~WaitWatch() { callbacks_.erase(place_); }
    WaitWatch(const WaitWatch&) = delete;
    WaitWatch& operator=(const WaitWatch&) = delete;

   private:
    std::list<WaitCallback>& callbacks_;
    std::list<WaitCallback>::iterator place_;
  };

  /// Blocks until the event has completed.
  void wait_for(cudaEvent_t event);

  /// Blocks until everything enqueued on either stream has completed.
  void synchronize();

 private:
  Stream compute_;
  Stream communication_;
  Event event_;
  std::list<WaitCallback> wait_callbacks_;
};

/// Makes later work on `second` wait for the work enqueued on `first` so far. Records `event`.
void order_streams(cudaStream_t first, cudaStream_t second, cudaEvent_t event);

}  // namespace lockstep::cuda
