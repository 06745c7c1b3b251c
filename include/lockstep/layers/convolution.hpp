// Convolutions over images in channels_last format.
#pragma once

#include <lockstep/layers/activation.hpp>
#include <lockstep/layers/callable.hpp>
#include <lockstep/layers/geometry.hpp>
#include <lockstep/layers/initializer.hpp>

#include <string>
#include <utility>

namespace lockstep {

struct Conv2DOptions {
  Size2D strides = 1;
  Padding padding = Padding::valid;
  Size2D dilation_rate = 1;
  ActivationFunction activation = ActivationFunction::linear;
  bool use_bias = true;
  Initializer kernel_initializer = Initializer::glorot_uniform;
  Initializer bias_initializer = Initializer::zeros;
  std::string name = {};
};

/// Cross-correlates (height, width, in) with a [kernel_size.height, kernel_size.width, in, filters] kernel, adds a
/// bias, and applies the activation.
struct Conv2D : Conv2DOptions, CallableLayer<Conv2D> {
  Conv2D(int filters_, Size2D kernel_size_, Conv2DOptions options = {})
      : Conv2DOptions(std::move(options)), filters(filters_), kernel_size(kernel_size_) {}
  int filters;
  Size2D kernel_size;
};

}  // namespace lockstep
