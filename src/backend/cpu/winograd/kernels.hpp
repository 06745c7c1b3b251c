// The parts of a Winograd convolution that are compiled for a vector width. Images lie in blocks of `lanes` channels:
// nChw16c or nChw8c. They are of float32 or, in blocks of 16, of bfloat16; all else is float32.
//
// A pass over a block of tiles transforms inputs to matrices, one for each component: [component][tile][channel]. It
// multiplies each matrix by the transformed weights of its component, [component][block of output channels][input
// channel][lane], and transforms the products to results. The weight gradient multiplies the matrices of the inputs and
// of the results' gradients, over the tiles.
#pragma once

#include "backend/cpu/winograd/tiling.hpp"
#include "core/bfloat16.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::winograd {

/// The images that a pass reads and writes.
struct Geometry {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::int64_t out_height = 0;
  std::int64_t out_width = 0;
  std::int64_t out_channels = 0;
  std::int64_t top = 0;  ///< padding
  std::int64_t left = 0;

  [[nodiscard]] std::int64_t elements() const noexcept { return height * width * channels; }
  [[nodiscard]] std::int64_t out_elements() const noexcept { return out_height * out_width * out_channels; }
  /// Floats from one component's transformed weights to the next one's, and of all components.
  [[nodiscard]] std::int64_t weight_stride() const noexcept { return padded_stride(channels * out_channels); }
  [[nodiscard]] std::int64_t weight_elements() const noexcept { return components * weight_stride(); }
  /// The convolution that computes the data gradient.
  [[nodiscard]] Geometry flipped() const noexcept {
    return {out_height, out_width, out_channels, height, width, channels, 2 - top, 2 - left};
  }

  /// Strides of a power of two would map all components to the same few sets of the first-level cache.
  [[nodiscard]] static constexpr std::int64_t padded_stride(std::int64_t elements) noexcept { return elements + 16; }
};

// NOLINTBEGIN(google-explicit-constructor): pointers to elements of either type are images

/// Images of float32 or of bfloat16.
struct Images {
  Images(float* images) : data(images) {}
  Images(BFloat16* images) : data(images), is_bfloat16(true) {}

  void* data;
  bool is_bfloat16 = false;
};
struct ConstImages {
  ConstImages() = default;
  ConstImages(const float* images) : data(images) {}
  ConstImages(const BFloat16* images) : data(images), is_bfloat16(true) {}
  ConstImages(const Images& images) : data(images.data), is_bfloat16(images.is_bfloat16) {}

  const void* data = nullptr;
  bool is_bfloat16 = false;
};

// NOLINTEND(google-explicit-constructor)

/// What the output transform does to results before it writes them.
struct Epilogue {
  const float* bias = nullptr;  ///< by channel; null: none
  bool relu = false;
  ConstImages relu_output = {};  ///< as the results, which become 0 where it is 0; null: none
};

/// Matrices by component, `stride` floats apart.
struct ComponentMatrices {
  float* data = nullptr;
  std::int64_t stride = 0;
};

/// The transforms that read and write images of one element type.
struct ImageTransforms {
  void (*inputs)(const Geometry&, std::span<const Tile>, const void* x, ComponentMatrices inputs);
  void (*output_gradients)(const Geometry&, std::span<const Tile>, const void* y_gradient, ComponentMatrices gradients);
  /// `epilogue.relu_output` has the same element type.
  void (*outputs)(const Geometry&, std::span<const Tile>, ComponentMatrices products, const Epilogue& epilogue,
                  void* y);
};

struct KernelTable {
  std::int64_t lanes;
  ImageTransforms float32;
  ImageTransforms bfloat16;  ///< null with 8 lanes: blocks of 8 channels in bfloat16 are not implemented

  /// Transforms weights in Keras' order, [row][column][input channel][output channel], for the `lanes` output channels
  /// from `output` on.
  void (*transform_weights)(const Geometry&, std::int64_t output, const float* weights, float* transformed);
  /// The same for a convolution that computes the data gradient: `weights` are those of the forward pass, whose input
  /// channels are this geometry's output channels. Flips them along both axes.
  void (*transform_flipped_weights)(const Geometry&, std::int64_t output, const float* weights, float* transformed);

  /// One component: products[tile][output channel] = sum over channels of inputs[tile][channel] times weights.
  void (*multiply)(const Geometry&, std::int64_t tiles, const float* inputs, const float* weights, float* products);
  /// One component: adds inputs[tile][channel] times gradients[tile][output channel], tile by tile, to `sums`, which
  /// has the order of transformed weights.
  void (*multiply_over_tiles)(const Geometry&, std::int64_t tiles, const float* inputs, const float* gradients,
                              float* sums);

  /// The gradient of weights in Keras' order from those of their components, for `lanes` output channels.
  void (*transform_weight_gradients)(const Geometry&, std::int64_t output, const float* sums, float* gradients);

  [[nodiscard]] const ImageTransforms& of(bool is_bfloat16) const noexcept { return is_bfloat16 ? bfloat16 : float32; }
};

[[nodiscard]] const KernelTable& avx512_kernels() noexcept;
[[nodiscard]] const KernelTable& avx2_kernels() noexcept;

}  // namespace lockstep::winograd
