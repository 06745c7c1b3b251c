// See device_communicator.hpp.
#include "collective/cuda/device_communicator.hpp"

#include <cstddef>
#include <numeric>
#include <utility>

#include "collective/argument_checks.hpp"

namespace lockstep {

using cuda::check;

DeviceCommunicator::DeviceCommunicator(std::unique_ptr<Communicator> control, cuda::DeviceStreams& device_streams)
    : control_(std::move(control)), device_streams_(device_streams), updated_(cuda::make_event()) {}

std::vector<int> DeviceCommunicator::mirror_of_rank() const {
  std::vector<int> mirrors(static_cast<std::size_t>(size()));
  std::iota(mirrors.begin(), mirrors.end(), 0);  // every rank updates all weights in its own device's memory
  return mirrors;
}

ArenaMemory DeviceCommunicator::allocate(std::size_t gradient_elements, std::size_t mirrored_bytes,
                                         std::vector<Range> buckets) {
  gradients_memory_ = cuda::DeviceBuffer(gradient_elements * sizeof(float));
  return use_memory({gradients_memory_.as<float>(), gradient_elements}, mirrored_bytes, std::move(buckets));
}

ArenaMemory DeviceCommunicator::use_memory(std::span<float> gradients, std::size_t mirrored_bytes,
                                           std::vector<Range> buckets) {
  check_buckets(buckets, gradients.size());
  buckets_ = std::move(buckets);
  gradients_ = gradients;
  mirrored_ = cuda::DeviceBuffer(mirrored_bytes);
  source_ = gradients_.data();
  for (std::size_t b = 0; b < buckets_.size(); ++b) ready_.push_back(cuda::make_event());
  return {gradients_, {mirrored_.data(), mirrored_bytes}};
}

void DeviceCommunicator::mark_ready(std::size_t bucket) {
  check(cudaEventRecord(ready_.at(bucket).get(), device_streams_.compute()), "cudaEventRecord");
}

ReducedShard DeviceCommunicator::wait_reduced(std::size_t bucket) {
  const Range range = buckets_.at(bucket);
  check(cudaStreamWaitEvent(device_streams_.communication(), ready_[bucket].get(), 0), "cudaStreamWaitEvent");
  all_reduce(bucket, gradients_.subspan(range.begin, range.size()));
  return {range.begin, range.end, {&source_, 1}};
}

void DeviceCommunicator::mark_updated(std::size_t /*bucket*/) { is_update_awaited_ = false; }

void DeviceCommunicator::wait_updated(std::size_t /*bucket*/) {
  if (is_update_awaited_) return;
  cuda::order_streams(device_streams_.communication(), device_streams_.compute(), updated_.get());
  is_update_awaited_ = true;
}

void DeviceCommunicator::all_reduce(std::size_t /*bucket*/, std::span<float> /*gradients*/) {}

}  // namespace lockstep
