// See device_queue.hpp.
#include "core/cuda/device_queue.hpp"

#include "core/clock.hpp"

namespace lockstep::cuda {

void DeviceQueue::wait_for(cudaEvent_t event) {
  constexpr double look_every = 0.001;
  double start = 0;
  double next_look = 0;
  for (bool first = true;; first = false) {
    const cudaError_t status = cudaEventQuery(event);
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) check(status, "cudaEventQuery");
    const double now = monotonic_seconds();
    if (first) {
      start = now;
      next_look = now + look_every;
    } else if (now >= next_look) {
      if (watch_) watch_(now - start);
      next_look = now + look_every;
    }
  }
}

void DeviceQueue::finish() {
  for (cudaStream_t stream : {compute(), communication()}) {
    check(cudaEventRecord(event_.get(), stream), "cudaEventRecord");
    wait_for(event_.get());
  }
}

void order(cudaStream_t first, cudaStream_t second, cudaEvent_t event) {
  check(cudaEventRecord(event, first), "cudaEventRecord");
  check(cudaStreamWaitEvent(second, event, 0), "cudaStreamWaitEvent");
}

}  // namespace lockstep::cuda
