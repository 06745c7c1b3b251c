// A tensor of a graph: its shape for one example, its element type, and the layout of its values in memory.
#pragma once

#include "graph/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

enum class ElementType { float32, bfloat16 };

[[nodiscard]] constexpr std::string_view to_string(ElementType type) noexcept {
  return type == ElementType::bfloat16 ? "bfloat16" : "float32";
}

[[nodiscard]] constexpr std::size_t size_of(ElementType type) noexcept {
  return type == ElementType::bfloat16 ? sizeof(std::uint16_t) : sizeof(float);
}

struct TensorSpec {
  std::string name;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t channels = 1;
  Layout layout = Layout::nhwc;         ///< chosen by the backend
  bool requires_channels_last = false;  ///< requires Layout::nhwc
  std::int64_t first_channel = 0;       ///< of a sharded tensor: this rank's first channel
  std::int64_t whole_channels = 0;  ///< of a sharded tensor: the channels of all ranks; 0: the tensor is not sharded
  /// Not 0: the values and gradients are used only within one microbatch of at most this many examples, so all
  /// microbatches share their memory.
  std::size_t microbatch_examples = 0;
  int alias = -1;           ///< the tensor whose values this one shares; -1: it has its own
  int gradient_alias = -1;  ///< the tensor whose gradient this one shares; -1: it has its own
  bool is_fork = false;     ///< one of several uses of `alias`: equal shape and layout, and a gradient of its own
  ElementType type = ElementType::float32;

  [[nodiscard]] std::int64_t elements() const noexcept { return height * width * channels; }

  /// Channels that are contiguous in memory.
  [[nodiscard]] std::int64_t block() const noexcept { return block_of(layout, channels); }
  /// Whether the values have Keras' order, which images of one pixel and of one channel have in every layout.
  [[nodiscard]] bool is_channels_last() const noexcept { return block() == channels || height * width == 1; }

  /// The offset in memory of the element with this index in Keras' order (row-major over height, width, channel).
  [[nodiscard]] std::int64_t offset_of_keras_index(std::int64_t index) const noexcept {
    const std::int64_t size = block();
    const std::int64_t channel = index % channels;
    const std::int64_t pixel = index / channels;
    return ((channel / size) * height * width + pixel) * size + channel % size;
  }

  /// The index in Keras' order of this tensor's element `index` within the unsharded tensor.
  [[nodiscard]] std::int64_t global_keras_index(std::int64_t index) const noexcept {
    if (whole_channels == 0) return index;
    return index / channels * whole_channels + first_channel + index % channels;
  }
};

}  // namespace lockstep
