// Converts convolution kernels between Keras' layout [height, width, in, out] or [steps, in, out], as in files, and
// cuDNN's NHWC filter layout [out, height, width, in], as on the device.
#pragma once

#include <lockstep/core/shape.hpp>

#include <cstddef>
#include <span>

namespace lockstep::cuda {

/// Calls visit(index in Keras' order, index in cuDNN's). `shape` is Keras'.
template <typename Visit>
void for_each_weight_index(const Shape& shape, Visit visit) {
  const auto in = static_cast<std::size_t>(shape[shape.rank() - 2]);
  const auto out = static_cast<std::size_t>(shape[shape.rank() - 1]);
  const std::size_t pixels = static_cast<std::size_t>(shape.elements()) / (in * out);
  for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
    for (std::size_t i = 0; i < in; ++i) {
      for (std::size_t o = 0; o < out; ++o) visit((pixel * in + i) * out + o, (o * pixels + pixel) * in + i);
    }
  }
}

inline void to_cudnn_layout(const Shape& shape, std::span<const float> keras, std::span<float> cudnn) {
  for_each_weight_index(shape, [&](std::size_t from, std::size_t to) { cudnn[to] = keras[from]; });
}

inline void to_keras_layout(const Shape& shape, std::span<const float> cudnn, std::span<float> keras) {
  for_each_weight_index(shape, [&](std::size_t to, std::size_t from) { keras[to] = cudnn[from]; });
}

}  // namespace lockstep::cuda
