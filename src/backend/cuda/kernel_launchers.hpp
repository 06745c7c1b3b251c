// Launches small kernels around those of the libraries, for code that nvcc does not compile. All functions enqueue on
// `stream`. Values have the type that the ElementType names.
#pragma once

#include "backend/backend.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>

namespace lockstep::cuda {

/// to = f(from + bias), converted to `to_type`. `bias` has one value per channel and may be null.
void add_bias_activation(cudaStream_t stream, ElementType from_type, const void* from, ElementType to_type, void* to,
                         const float* bias, std::size_t count, std::size_t channels, ActivationFunction function);

/// Multiplies the columns [begin, begin + width) of a [rows, stride] gradient by the derivative of the activation that
/// produced x, in place.
void apply_activation_gradient(cudaStream_t stream, ElementType type, const void* x, void* gradient, std::size_t rows,
                               std::size_t stride, std::size_t begin, std::size_t width, ActivationFunction function);

/// Sums each channel of a [pixels, channels] gradient.
void reduce_bias_gradient(cudaStream_t stream, ElementType type, const void* gradient, std::size_t pixels,
                          std::size_t channels, std::byte* scratch, float* bias_gradient);

/// Bytes of scratch memory for per-channel sums over `channels` channels.
[[nodiscard]] std::size_t channel_reduction_scratch_bytes(std::size_t channels);

/// Fills memory with numbers in [-1, 1), the same ones each time.
void fill_with_random_numbers(cudaStream_t stream, ElementType type, void* memory, std::size_t count);

/// Sizes of images and of padded images, in pixels. `above` and `before` are the padding at the top and on the left.
struct PaddingSizes {
  std::size_t images, height, width, channels, padded_height, padded_width, above, before;
};
void pad_images(cudaStream_t stream, ElementType type, const void* from, void* padded, const PaddingSizes& sizes);
void crop_images(cudaStream_t stream, ElementType type, const void* padded, void* to, const PaddingSizes& sizes);

}  // namespace lockstep::cuda
