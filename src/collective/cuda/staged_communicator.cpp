// See staged_communicator.hpp.
#include "collective/cuda/staged_communicator.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep {

using cuda::check;

StagedCommunicator::StagedCommunicator(std::unique_ptr<Communicator> control, std::unique_ptr<Communicator> host,
                                       cuda::DeviceQueue& queue)
    : DeviceCommunicator(std::move(control), queue), host_(std::move(host)), copied_(cuda::make_event()) {}

std::string StagedCommunicator::describe() const {
  return "MPI through host memory (" + std::to_string(size()) + " ranks)";
}

ArenaMemory StagedCommunicator::allocate(std::size_t gradient_elements, std::size_t mirrored_bytes,
                                         std::vector<BucketRange> buckets) {
  staged_ = host_->allocate(gradient_elements, 0, buckets).gradients;
  return DeviceCommunicator::allocate(gradient_elements, mirrored_bytes, std::move(buckets));
}

void StagedCommunicator::sum(std::size_t bucket, std::span<float> gradients) {
  const BucketRange range = buckets()[bucket];
  cudaStream_t stream = queue().communication();
  host_->await(bucket);
  check(cudaMemcpyAsync(staged_.data() + range.begin, gradients.data(), gradients.size_bytes(), cudaMemcpyDeviceToHost,
                        stream),
        "cudaMemcpyAsync");
  check(cudaEventRecord(copied_.get(), stream), "cudaEventRecord");
  queue().wait_for(copied_.get());
  host_->contribute(bucket);
  const ReducedShare share = host_->reduce(bucket);
  if (share.begin != range.begin || share.end != range.end) throw InternalError("a staged sum needs whole buckets");
  const float* sum = share.sources[0] + share.begin;
  if (share.sources.size() > 1) {  // a pair of ranks swaps its gradients, and each adds them
    sum_.assign(sum, sum + gradients.size());
    for (const float* source : share.sources.subspan(1)) {
      std::transform(sum_.begin(), sum_.end(), source + share.begin, sum_.begin(), std::plus<>());
    }
    sum = sum_.data();
  }
  check(cudaMemcpyAsync(gradients.data(), sum, gradients.size_bytes(), cudaMemcpyHostToDevice, stream),
        "cudaMemcpyAsync");
  check(cudaEventRecord(copied_.get(), stream), "cudaEventRecord");
  queue().wait_for(copied_.get());  // before the next step overwrites the host's copy
  host_->publish(bucket);
}

}  // namespace lockstep
