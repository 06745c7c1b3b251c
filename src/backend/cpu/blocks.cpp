// Around an exchange between ranks, where a model divided by examples goes on by features. One side of it holds all
// channels of this rank's examples, the other this rank's channels of all examples, in Keras' order; between two ranks
// there is a block, the examples of one times the channels of the other. Values go from the first side to the second,
// their gradients back.
#include "backend/cpu/kernel.hpp"
#include "core/slice.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

/// The first float of each rank's block.
std::vector<float*> blocks_of(std::span<float> memory, const std::vector<std::size_t>& sizes) {
  std::vector<float*> blocks;
  std::size_t at = 0;
  for (const std::size_t size : sizes) {
    blocks.push_back(memory.data() + at);
    at += size;
  }
  return blocks;
}

/// This rank's channels of all examples. A rank's block lies as its rows of the tensor do.
template <typename T>
class BlocksOfRows final : public Kernel {
 public:
  BlocksOfRows(const KernelScope& scope, T* tensor, std::vector<float*> blocks)
      : packs_(scope.operation.kind == OperationKind::pack), tensor_(tensor), blocks_(std::move(blocks)) {
    const int t = packs_ ? scope.operation.input : scope.operation.output;
    const auto elements = static_cast<std::size_t>(scope.graph.tensors[t].elements());
    for (int rank = 0; rank < scope.graph.ranks; ++rank) {
      const Slice rows = scope.graph.rows_of(scope.rows, rank);
      places_.push_back({rows.begin * elements, rows.end * elements});
    }
  }

  void run(const StepContext& /*context*/) override {
    for (std::size_t rank = 0; rank < blocks_.size(); ++rank) {
      T* const rows = tensor_ + places_[rank].begin;
      if (packs_) {
        std::copy_n(rows, places_[rank].size(), blocks_[rank]);
      } else {
        std::copy_n(blocks_[rank], places_[rank].size(), rows);
      }
    }
  }

 private:
  bool packs_;
  T* tensor_;
  std::vector<float*> blocks_;
  std::vector<Slice> places_;  ///< by rank: elements of the tensor
};

/// All channels of this rank's examples, in whichever layout.
template <typename T>
class BlocksOfChannels final : public Kernel {
 public:
  BlocksOfChannels(const KernelScope& scope, T* tensor, std::vector<float*> blocks)
      : packs_(scope.operation.kind == OperationKind::pack),
        rows_(static_cast<std::int64_t>(scope.rows)),
        spec_(scope.graph.tensors[packs_ ? scope.operation.input : scope.operation.output]),
        tensor_(tensor),
        blocks_(std::move(blocks)),
        channels_(scope.graph.exchanges[scope.operation.exchange].channels) {}

  void run(const StepContext& /*context*/) override {
    std::int64_t first = 0;
    for (std::size_t rank = 0; rank < blocks_.size(); ++rank) {
      float* block = blocks_[rank];
      for (std::int64_t r = 0; r < rows_; ++r) {
        T* const example = tensor_ + r * spec_.elements();
        for (std::int64_t pixel = 0; pixel < spec_.height * spec_.width; ++pixel) {
          block = copy_pixel(example, pixel, first, first + channels_[rank], block);
        }
      }
      first += channels_[rank];
    }
  }

 private:
  /// Channels lie side by side up to the end of a block of the layout.
  float* copy_pixel(T* example, std::int64_t pixel, std::int64_t begin, std::int64_t end, float* block) const {
    while (begin < end) {
      const std::int64_t count = std::min(end, (begin / spec_.block + 1) * spec_.block) - begin;
      T* const cell = example + spec_.place_of(pixel * spec_.channels + begin);
      if (packs_) {
        std::copy_n(cell, count, block);
      } else {
        std::copy_n(block, count, cell);
      }
      begin += count;
      block += count;
    }
    return block;
  }

  bool packs_;
  std::int64_t rows_;
  const TensorSpec& spec_;
  T* tensor_;
  std::vector<float*> blocks_;
  std::vector<std::int64_t> channels_;  ///< of each rank
};

}  // namespace

std::unique_ptr<Kernel> make_blocks(const KernelScope& scope) {
  const Operation& operation = scope.operation;
  const bool packs = operation.kind == OperationKind::pack;
  const int tensor = packs ? operation.input : operation.output;
  const bool is_value = operation.exchange == 0;
  const ExchangeSpec& exchange = scope.graph.exchanges[operation.exchange];
  const ExchangeBuffers& memory = scope.arenas.exchanges[operation.exchange];
  std::vector<float*> blocks =
      packs ? blocks_of(memory.given, exchange.given) : blocks_of(memory.taken, exchange.taken);
  return with_type(scope.graph.tensors[tensor], [&](auto zero) -> std::unique_ptr<Kernel> {
    using T = decltype(zero);
    T* const values = is_value ? scope.value<T>(tensor) : scope.gradient<T>(tensor);
    if (operation.by_examples) return std::make_unique<BlocksOfChannels<T>>(scope, values, std::move(blocks));
    return std::make_unique<BlocksOfRows<T>>(scope, values, std::move(blocks));
  });
}

}  // namespace lockstep
