// A tensor of a graph: its shape for one example, its element type, and the layout of its values in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

enum class ElementType { float32, bfloat16 };

[[nodiscard]] constexpr std::size_t size_of(ElementType type) noexcept {
  return type == ElementType::bfloat16 ? sizeof(std::uint16_t) : sizeof(float);
}

/// Examples are contiguous. Each is laid out as [channels / block][height][width][block]; block == channels is
/// channels last, as in Keras.
struct TensorSpec {
  std::string name;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t channels = 1;
  std::int64_t block = 1;               ///< chosen by the backend; divides channels
  bool blocked = false;                 ///< described to oneDNN as blocked, even if one block holds all channels
  bool requires_channels_last = false;  ///< requires block == channels
  std::int64_t first_channel = 0;       ///< of a sharded tensor: this rank's first channel
  std::int64_t whole_channels = 0;  ///< of a sharded tensor: the channels of all ranks; 0: the tensor is not sharded
  /// Not 0: the values and gradients are used only within one microbatch of at most this many examples, so all
  /// microbatches share their memory.
  std::size_t microbatch_examples = 0;
  int alias = -1;  ///< the tensor whose memory this one shares in another shape; -1: it has its own memory
  ElementType type = ElementType::float32;

  [[nodiscard]] std::int64_t elements() const noexcept { return height * width * channels; }

  /// The offset in memory of the element with this index in Keras' order (row-major over height, width, channel).
  [[nodiscard]] std::int64_t offset_of_keras_index(std::int64_t index) const noexcept {
    const std::int64_t channel = index % channels;
    const std::int64_t pixel = index / channels;
    return ((channel / block) * height * width + pixel) * block + channel % block;
  }

  /// The index in Keras' order of this tensor's element `index` within the unsharded tensor.
  [[nodiscard]] std::int64_t global_keras_index(std::int64_t index) const noexcept {
    if (whole_channels == 0) return index;
    return index / channels * whole_channels + first_channel + index % channels;
  }
};

}  // namespace lockstep
