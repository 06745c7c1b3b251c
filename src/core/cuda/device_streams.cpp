// See device_streams.hpp.
#include "core/cuda/device_streams.hpp"

#include "core/clock.hpp"

namespace lockstep::cuda {

void DeviceStreams::wait_for(cudaEvent_t event) {
  constexpr double callback_period = 0.001;
  double start = 0;
  double next_callback = 0;
  for (bool first = true;; first = false) {
    const cudaError_t status = cudaEventQuery(event);
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) check(status, "cudaEventQuery");
    const double now = monotonic_seconds();
    if (first) {
      start = now;
      next_callback = now + callback_period;
    } else if (now >= next_callback) {
      for (const WaitCallback& callback : wait_callbacks_) callback(now - start);
      next_callback = now + callback_period;
    }
  }
}

void DeviceStreams::synchronize() {
  for (cudaStream_t stream : {compute(), communication()}) {
    check(cudaEventRecord(event_.get(), stream), "cudaEventRecord");
    wait_for(event_.get());
  }
}

void order_streams(cudaStream_t first, cudaStream_t second, cudaEvent_t event) {
  check(cudaEventRecord(event, first), "cudaEventRecord");
  check(cudaStreamWaitEvent(second, event, 0), "cudaStreamWaitEvent");
}

}  // namespace lockstep::cuda
