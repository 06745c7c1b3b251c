// Keras' convolution kernels are [height, width, in, out], cuDNN's with the channels last are [out, height, width, in].
#pragma once

#include <lockstep/core/shape.hpp>

#include <span>

namespace lockstep::cuda {

/// `shape` is Keras'.
void to_cudnn_order(const Shape& shape, std::span<const float> keras, std::span<float> ours);
void to_keras_order(const Shape& shape, std::span<const float> ours, std::span<float> keras);

}  // namespace lockstep::cuda
