// A convolution kernel's order in files and on the device: Keras' is [height, width, in, out], cuDNN's with the
// channels last is [out, height, width, in].
#pragma once

#include <lockstep/core/shape.hpp>

#include <cstddef>
#include <span>

namespace lockstep::cuda {

/// Calls visit(place in Keras' order, place in cuDNN's). `shape` is Keras'.
template <typename Visit>
void for_each_place(const Shape& shape, Visit visit) {
  const auto pixels = static_cast<std::size_t>(shape[0] * shape[1]);
  const auto in = static_cast<std::size_t>(shape[2]);
  const auto out = static_cast<std::size_t>(shape[3]);
  for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
    for (std::size_t i = 0; i < in; ++i) {
      for (std::size_t o = 0; o < out; ++o) visit((pixel * in + i) * out + o, (o * pixels + pixel) * in + i);
    }
  }
}

inline void to_cudnn_order(const Shape& shape, std::span<const float> keras, std::span<float> ours) {
  for_each_place(shape, [&](std::size_t from, std::size_t to) { ours[to] = keras[from]; });
}

inline void to_keras_order(const Shape& shape, std::span<const float> ours, std::span<float> keras) {
  for_each_place(shape, [&](std::size_t to, std::size_t from) { keras[to] = ours[from]; });
}

}  // namespace lockstep::cuda
