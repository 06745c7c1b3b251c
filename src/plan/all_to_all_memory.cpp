// See all_to_all_memory.hpp.
#include "plan/all_to_all_memory.hpp"

#include <cstddef>
#include <numeric>

namespace lockstep {

namespace {

/// Splits `all` into contiguous blocks of these sizes.
template <typename Float>
std::vector<std::span<Float>> blocks_of(std::span<Float> all, const std::vector<std::size_t>& sizes) {
  std::vector<std::span<Float>> blocks;
  for (const std::size_t size : sizes) {
    blocks.push_back(all.first(size));
    all = all.subspan(size);
  }
  return blocks;
}

}  // namespace

AllToAllMemory::AllToAllMemory(const Graph& graph) {
  const auto allocate = [this](const std::vector<std::size_t>& sizes) {
    const std::size_t floats = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    return memory_.emplace_back(floats * sizeof(float)).as<float>();
  };
  for (const AllToAllSpec& all_to_all : graph.all_to_alls) {
    const AllToAllBuffers& buffers =
        buffers_.emplace_back(AllToAllBuffers{allocate(all_to_all.send_counts), allocate(all_to_all.receive_counts)});
    all_to_alls_.push_back({blocks_of<const float>(buffers.send, all_to_all.send_counts),
                            blocks_of(buffers.receive, all_to_all.receive_counts)});
  }
}

}  // namespace lockstep
