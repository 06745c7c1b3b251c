// See single_rank_communicator.hpp.
#include "collective/single_rank_communicator.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collective/argument_checks.hpp"

namespace lockstep {

ArenaMemory SingleRankCommunicator::allocate(std::size_t gradient_elements, std::size_t mirrored_bytes,
                                             std::vector<Range> buckets) {
  check_buckets(buckets, gradient_elements);
  buckets_ = std::move(buckets);
  gradients_ = AlignedBuffer(gradient_elements * sizeof(float));
  mirrored_ = AlignedBuffer(mirrored_bytes);
  source_ = gradients_.as<float>().data();
  return {gradients_.as<float>(), mirrored_.as<std::byte>()};
}

ReducedShard SingleRankCommunicator::wait_reduced(std::size_t bucket) {
  const Range range = buckets_.at(bucket);
  return {range.begin, range.end, {&source_, 1}};
}

void SingleRankCommunicator::broadcast(std::span<std::byte>, int root) { check_root(root, 1); }

void SingleRankCommunicator::start_gather(std::span<const std::span<std::byte>> /*shards*/, int root,
                                          OnGathered /*on_gathered*/, std::size_t /*max_steps*/) {
  check_root(root, 1);
}

std::vector<std::string> SingleRankCommunicator::all_gather(const std::string& text) {
  check_all_gather_size(text.size(), 0);
  return {text};
}

}  // namespace lockstep
