// See exchange_memory.hpp.
#include "plan/exchange_memory.hpp"

#include <cstddef>
#include <numeric>

namespace lockstep {

namespace {

/// Blocks side by side.
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

ExchangeMemory::ExchangeMemory(const Graph& graph) {
  const auto allocate = [this](const std::vector<std::size_t>& sizes) {
    const std::size_t floats = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    return memory_.emplace_back(floats * sizeof(float)).as<float>();
  };
  for (const ExchangeSpec& exchange : graph.exchanges) {
    const ExchangeBuffers& buffers =
        buffers_.emplace_back(ExchangeBuffers{allocate(exchange.given), allocate(exchange.taken)});
    exchanges_.push_back(
        {blocks_of<const float>(buffers.given, exchange.given), blocks_of(buffers.taken, exchange.taken)});
  }
}

}  // namespace lockstep
