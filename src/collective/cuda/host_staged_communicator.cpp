// See host_staged_communicator.hpp.
#include "collective/cuda/host_staged_communicator.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace lockstep {

using cuda::check;

HostStagedCommunicator::HostStagedCommunicator(std::unique_ptr<Communicator> control,
                                               std::unique_ptr<Communicator> host, cuda::DeviceStreams& device_streams)
    : DeviceCommunicator(std::move(control), device_streams),
      host_communicator_(std::move(host)),
      copied_(cuda::make_event()) {}

std::string HostStagedCommunicator::describe() const {
  return fmt::format("MPI through host memory ({} ranks)", size());
}

ArenaMemory HostStagedCommunicator::allocate(std::size_t gradient_elements, std::size_t mirrored_bytes,
                                             std::vector<Range> buckets) {
  host_gradients_ = host_communicator_->allocate(gradient_elements, 0, buckets).gradients;
  return DeviceCommunicator::allocate(gradient_elements, mirrored_bytes, std::move(buckets));
}

void HostStagedCommunicator::all_reduce(std::size_t bucket, std::span<float> gradients) {
  const Range range = buckets()[bucket];
  cudaStream_t stream = device_streams().communication();
  host_communicator_->wait_updated(bucket);
  check(cudaMemcpyAsync(host_gradients_.data() + range.begin, gradients.data(), gradients.size_bytes(),
                        cudaMemcpyDeviceToHost, stream),
        "cudaMemcpyAsync");
  check(cudaEventRecord(copied_.get(), stream), "cudaEventRecord");
  device_streams().wait_for(copied_.get());
  host_communicator_->mark_ready(bucket);
  const ReducedShard shard = host_communicator_->wait_reduced(bucket);
  if (shard.begin != range.begin || shard.end != range.end)
    throw InternalError("a host-staged all-reduce needs whole buckets");
  const float* sum = shard.sources[0] + shard.begin;
  if (shard.sources.size() > 1) {  // two ranks swap their gradients, and each adds them
    host_sum_.assign(sum, sum + gradients.size());
    for (const float* source : shard.sources.subspan(1)) {
      std::transform(host_sum_.begin(), host_sum_.end(), source + shard.begin, host_sum_.begin(), std::plus<>());
    }
    sum = host_sum_.data();
  }
  check(cudaMemcpyAsync(gradients.data(), sum, gradients.size_bytes(), cudaMemcpyHostToDevice, stream),
        "cudaMemcpyAsync");
  check(cudaEventRecord(copied_.get(), stream), "cudaEventRecord");
  device_streams().wait_for(copied_.get());  // the next step overwrites the host's copy
  host_communicator_->mark_updated(bucket);
}

}  // namespace lockstep
