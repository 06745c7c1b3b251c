// Times work on the device as steps run it: in CUDA graphs of several launches, so that neither the host's time for a
// launch nor the resolution of events counts.
#pragma once

#include "core/cuda/memory.hpp"

#include <functional>

namespace lockstep::cuda {

/// `Enqueue` enqueues the work on the timer's stream. Nothing else may be in flight.
class LaunchTimer {
 public:
  using Enqueue = std::function<void()>;

  explicit LaunchTimer(cudaStream_t stream) : stream_(stream), begin_(make_timed_event()), end_(make_timed_event()) {}

  /// Runs the work once and waits for it. Libraries load their code during the first run, which is not representative.
  void run(const Enqueue& enqueue) const;

  /// Milliseconds of one run of work that has run before; infinite if it cannot be captured, or takes several times
  /// longer than `to_beat` milliseconds. With LOCKSTEP_CUDA_GRAPHS=0 the launches are not captured.
  [[nodiscard]] double milliseconds(const Enqueue& enqueue, double to_beat) const;

 private:
  /// The device's time between both ends of what `enqueue` enqueues, in milliseconds.
  [[nodiscard]] double measure(const Enqueue& enqueue) const;
  /// Null if the work cannot be captured.
  [[nodiscard]] GraphExec capture(const Enqueue& enqueue) const;

  cudaStream_t stream_;
  Event begin_;
  Event end_;
};

}  // namespace lockstep::cuda
