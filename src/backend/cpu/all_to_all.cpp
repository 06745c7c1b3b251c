// The kernels that pack and unpack an all-to-all between a model's data-parallel layers and the tensor-parallel layers
// behind them. Data-parallel tensors hold all channels of this rank's examples, tensor-parallel ones this rank's
// channels of all examples. Each pair of ranks exchanges blocks: the examples of one times the channels of the other,
// in Keras' order. Forward exchanges values, backward their gradients.
#include "backend/cpu/kernel.hpp"
#include "core/range.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

/// The data exchanged with one rank: a range of examples and a range of their channels.
struct Block {
  Range examples;
  std::int64_t first_channel = 0;
  std::int64_t last_channel = 0;
  float* memory = nullptr;
};

/// Copies blocks between a tensor of any layout and the all-to-all's buffer.
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
    T* const examples = tensor_ + block.examples.begin * static_cast<std::size_t>(spec_.elements());
    const bool is_whole = block.first_channel == 0 && block.last_channel == spec_.channels;
    if (is_whole && spec_.block() == spec_.channels) {
      copy(examples, block.memory, static_cast<std::int64_t>(block.examples.size()) * spec_.elements());
      return;
    }
    float* memory = block.memory;
    for (std::size_t i = 0; i < block.examples.size(); ++i) {
      T* const example = examples + i * static_cast<std::size_t>(spec_.elements());
      for (std::int64_t pixel = 0; pixel < spec_.height * spec_.width; ++pixel) {
        memory = copy_pixel(example, pixel, block.first_channel, block.last_channel, memory);
      }
    }
  }

  /// Channels are contiguous within a block of the layout.
  float* copy_pixel(T* example, std::int64_t pixel, std::int64_t begin, std::int64_t end, float* memory) const {
    while (begin < end) {
      const std::int64_t count = std::min(end, (begin / spec_.block() + 1) * spec_.block()) - begin;
      copy(example + spec_.offset_of_keras_index(pixel * spec_.channels + begin), memory, count);
      begin += count;
      memory += count;
    }
    return memory;
  }

  void copy(T* pixels, float* memory, std::int64_t count) const {
    if (packs_) {
      std::copy_n(pixels, count, memory);
    } else {
      std::copy_n(memory, count, pixels);
    }
  }

  const TensorSpec& spec_;
  bool packs_;
  T* tensor_;
  std::vector<Block> blocks_;
};

/// One block per rank, contiguous in `memory`.
std::vector<Block> blocks_of(const KernelScope& scope, const TensorSpec& tensor, std::span<float> memory,
                             const std::vector<std::size_t>& sizes) {
  const std::vector<std::int64_t>& channels = scope.graph.all_to_alls[*scope.operation.all_to_all].channels;
  std::vector<Block> blocks;
  std::int64_t channel = 0;
  std::size_t at = 0;
  for (int rank = 0; rank < scope.graph.ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    Block block{scope.graph.examples_of(scope.num_examples, rank), 0, tensor.channels, memory.data() + at};
    if (scope.operation.is_batch_split) {
      block.examples = {0, scope.num_examples};
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

std::unique_ptr<Kernel> make_all_to_all(const KernelScope& scope) {
  const Operation& operation = scope.operation;
  const bool packs = operation.kind == OperationKind::pack_all_to_all;
  const int t = packs ? operation.input : operation.output;
  const TensorSpec& tensor = scope.graph.tensors[t];
  const bool is_value = operation.all_to_all == 0;
  const AllToAllSpec& exchange = scope.graph.all_to_alls[*operation.all_to_all];
  const AllToAllBuffers& memory = scope.arenas.all_to_alls[*operation.all_to_all];
  std::vector<Block> blocks = packs ? blocks_of(scope, tensor, memory.send, exchange.send_counts)
                                    : blocks_of(scope, tensor, memory.receive, exchange.receive_counts);
  return with_type(tensor, [&](auto zero) -> std::unique_ptr<Kernel> {
    using T = decltype(zero);
    T* const values = is_value ? scope.value<T>(t) : scope.gradient<T>(t);
    return std::make_unique<Blocks<T>>(tensor, packs, values, std::move(blocks));
  });
}

}  // namespace lockstep
