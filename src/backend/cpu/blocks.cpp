// Around an exchange between ranks, where a model divided by examples goes on by features. One side of it holds all
// channels of this rank's examples, the other this rank's channels of all examples; between two ranks there is a block,
// the examples of one times the channels of the other, in Keras' order. Values go from the first side to the second,
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

/// What goes to a rank or comes from it: some examples, some channels of each.
struct Block {
  Slice rows;
  std::int64_t first_channel = 0;
  std::int64_t last_channel = 0;
  float* memory = nullptr;
};

/// Blocks of a tensor in whichever layout.
template <typename T>
class Blocks final : public Kernel {
 public:
  Blocks(const TensorSpec& spec, bool packs, T* tensor, std::vector<Block> blocks)
      : spec_(spec), packs_(packs), tensor_(tensor), blocks_(std::move(blocks)) {}

  void run(const StepContext& /*context*/) override {
    for (const Block& block : blocks_) copy_block(block);
  }

 private:
  void copy_block(const Block& block) const {
    T* const examples = tensor_ + block.rows.begin * static_cast<std::size_t>(spec_.elements());
    const bool is_whole = block.first_channel == 0 && block.last_channel == spec_.channels;
    if (is_whole && spec_.block == spec_.channels) {
      copy(examples, block.memory, static_cast<std::int64_t>(block.rows.size()) * spec_.elements());
      return;
    }
    float* memory = block.memory;
    for (std::size_t row = 0; row < block.rows.size(); ++row) {
      T* const example = examples + row * static_cast<std::size_t>(spec_.elements());
      for (std::int64_t pixel = 0; pixel < spec_.height * spec_.width; ++pixel) {
        memory = copy_pixel(example, pixel, block.first_channel, block.last_channel, memory);
      }
    }
  }

  /// Channels lie side by side up to the end of a block of the layout.
  float* copy_pixel(T* example, std::int64_t pixel, std::int64_t begin, std::int64_t end, float* memory) const {
    while (begin < end) {
      const std::int64_t count = std::min(end, (begin / spec_.block + 1) * spec_.block) - begin;
      copy(example + spec_.place_of(pixel * spec_.channels + begin), memory, count);
      begin += count;
      memory += count;
    }
    return memory;
  }

  void copy(T* cells, float* memory, std::int64_t count) const {
    if (packs_) {
      std::copy_n(cells, count, memory);
    } else {
      std::copy_n(memory, count, cells);
    }
  }

  const TensorSpec& spec_;
  bool packs_;
  T* tensor_;
  std::vector<Block> blocks_;
};

/// By rank, side by side in `memory`.
std::vector<Block> blocks_of(const KernelScope& scope, const TensorSpec& tensor, std::span<float> memory,
                             const std::vector<std::size_t>& sizes) {
  const std::vector<std::int64_t>& channels = scope.graph.exchanges[scope.operation.exchange].channels;
  std::vector<Block> blocks;
  std::int64_t channel = 0;
  std::size_t at = 0;
  for (int rank = 0; rank < scope.graph.ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    Block block{scope.graph.rows_of(scope.rows, rank), 0, tensor.channels, memory.data() + at};
    if (scope.operation.by_examples) {
      block.rows = {0, scope.rows};
      block.first_channel = channel;
      block.last_channel = channel + channels[r];
    }
    blocks.push_back(block);
    channel += channels[r];
    at += sizes[r];
  }
  return blocks;
}

}  // namespace

std::unique_ptr<Kernel> make_blocks(const KernelScope& scope) {
  const Operation& operation = scope.operation;
  const bool packs = operation.kind == OperationKind::pack;
  const int t = packs ? operation.input : operation.output;
  const TensorSpec& tensor = scope.graph.tensors[t];
  const bool is_value = operation.exchange == 0;
  const ExchangeSpec& exchange = scope.graph.exchanges[operation.exchange];
  const ExchangeBuffers& memory = scope.arenas.exchanges[operation.exchange];
  std::vector<Block> blocks = packs ? blocks_of(scope, tensor, memory.given, exchange.given)
                                    : blocks_of(scope, tensor, memory.taken, exchange.taken);
  return with_type(tensor, [&](auto zero) -> std::unique_ptr<Kernel> {
    using T = decltype(zero);
    T* const values = is_value ? scope.value<T>(t) : scope.gradient<T>(t);
    return std::make_unique<Blocks<T>>(tensor, packs, values, std::move(blocks));
  });
}

}  // namespace lockstep
