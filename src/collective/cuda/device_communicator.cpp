// See device_communicator.hpp.
#include "collective/cuda/device_communicator.hpp"

#include <utility>

#include "collective/limits.hpp"

namespace lockstep {

using cuda::check;

DeviceCommunicator::DeviceCommunicator(std::unique_ptr<Communicator> control, cuda::DeviceQueue& queue)
    : control_(std::move(control)), queue_(queue), published_(cuda::make_event()) {}

ArenaMemory DeviceCommunicator::allocate(std::size_t gradient_elements, std::size_t mirrored_bytes,
                                         std::vector<BucketRange> buckets) {
  check_buckets(buckets, gradient_elements);
  buckets_ = std::move(buckets);
  gradients_ = cuda::DeviceBuffer(gradient_elements * sizeof(float));
  mirrored_ = cuda::DeviceBuffer(mirrored_bytes);
  source_ = gradients_.as<float>();
  for (std::size_t b = 0; b < buckets_.size(); ++b) contributed_.push_back(cuda::make_event());
  return {{gradients_.as<float>(), gradient_elements}, {mirrored_.data(), mirrored_bytes}};
}

void DeviceCommunicator::contribute(std::size_t bucket) {
  check(cudaEventRecord(contributed_.at(bucket).get(), queue_.compute()), "cudaEventRecord");
}

ReducedShare DeviceCommunicator::reduce(std::size_t bucket) {
  const BucketRange range = buckets_.at(bucket);
  check(cudaStreamWaitEvent(queue_.communication(), contributed_[bucket].get(), 0), "cudaStreamWaitEvent");
  sum(bucket, {gradients_.as<float>() + range.begin, range.end - range.begin});
  return {range.begin, range.end, {&source_, 1}};
}

void DeviceCommunicator::publish(std::size_t /*bucket*/) { awaited_ = false; }

void DeviceCommunicator::await(std::size_t /*bucket*/) {
  if (awaited_) return;
  cuda::order(queue_.communication(), queue_.compute(), published_.get());
  awaited_ = true;
}

void DeviceCommunicator::sum(std::size_t /*bucket*/, std::span<float> /*gradients*/) {}

}  // namespace lockstep
