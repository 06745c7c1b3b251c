// Small kernels around those of the libraries, for code that nvcc does not compile. All enqueue on `stream`; values are
// float or bfloat16, as their ElementType says.
#pragma once

#include "backend/backend.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>

namespace lockstep::cuda {

/// to = f(from + bias), where `bias` (one a channel) may be null; also a mere change of type.
void finish(cudaStream_t stream, ElementType from_type, const void* from, ElementType to_type, void* to,
            const float* bias, std::size_t count, std::size_t channels, ActivationFunction function);

/// The gradient of rows [.., stride) in the columns [begin, begin + width), passed in place through the activation that
/// made x.
void pass_back(cudaStream_t stream, ElementType type, const void* x, void* gradient, std::size_t rows,
               std::size_t stride, std::size_t begin, std::size_t width, ActivationFunction function);

/// The sum of each channel over `pixels` rows.
void sum_bias(cudaStream_t stream, ElementType type, const void* gradient, std::size_t pixels, std::size_t channels,
              std::byte* scratch, float* bias_gradient);

/// Bytes of scratch for sums over so many channels.
[[nodiscard]] std::size_t sum_scratch_bytes(std::size_t channels);

/// Images inside larger ones, with so many cells above and before them.
struct FrameSizes {
  std::size_t images, height, width, channels, framed_height, framed_width, above, before;
};
void put_in_frame(cudaStream_t stream, ElementType type, const void* from, void* framed, const FrameSizes& sizes);
void take_out_of_frame(cudaStream_t stream, ElementType type, const void* framed, void* to, const FrameSizes& sizes);

}  // namespace lockstep::cuda
