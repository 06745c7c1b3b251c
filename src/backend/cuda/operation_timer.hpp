// Times of single operations on the device, for LOCKSTEP_CUDA_PROFILE=1. The host waits for each operation, so none
// overlaps another. Each is a range of NVTX, by which profilers show it.
#pragma once

#include "core/cuda/device_streams.hpp"

#include <nvtx3/nvToolsExt.h>

#include <string>

namespace lockstep::cuda {

class OperationTimer {
 public:
  explicit OperationTimer(DeviceStreams& device_streams)
      : device_streams_(device_streams), begin_(make_timed_event()), end_(make_timed_event()) {}

  /// Calls `enqueue`, which enqueues work on the stream, and waits for that work.
  template <typename Enqueue>
  void measure(const std::string& name, cudaStream_t stream, const Enqueue& enqueue) {
    (void)nvtxRangePushA(name.c_str());
    check(cudaEventRecord(begin_.get(), stream), "cudaEventRecord");
    enqueue();
    check(cudaEventRecord(end_.get(), stream), "cudaEventRecord");
    device_streams_.wait_for(end_.get());
    (void)nvtxRangePop();
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "cudaEventElapsedTime");
    seconds_ = 1e-3 * static_cast<double>(milliseconds);
  }

  /// Of the last operation.
  [[nodiscard]] double seconds() const noexcept { return seconds_; }

 private:
  DeviceStreams& device_streams_;
  Event begin_;
  Event end_;
  double seconds_ = 0;
};

}  // namespace lockstep::cuda
