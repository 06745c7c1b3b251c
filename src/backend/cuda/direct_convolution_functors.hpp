// Functors of a direct convolution with any strides, dilation and padding.
// Images are [height, width, channels], kernels [filter, height, width, channel].
#pragma once

#include "backend/cuda/elementwise_functors.hpp"
#include "backend/cuda/nhwc_index.hpp"

#include <cstddef>

namespace lockstep::cuda {

struct ConvolutionShape {
  int height, width, channels;
  int out_height, out_width, filters;
  int kernel_height, kernel_width;
  int stride_height, stride_width;
  int dilation_height, dilation_width;
  int above, before;  ///< padding at the top and on the left

  [[nodiscard]] LOCKSTEP_HOST_DEVICE std::size_t x_at(std::size_t image, int row, int column) const {
    return ((image * height + row) * width + column) * channels;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE std::size_t y_at(std::size_t image, int row, int column) const {
    return ((image * out_height + row) * out_width + column) * filters;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE std::size_t kernel_at(int filter, int row, int column) const {
    return ((static_cast<std::size_t>(filter) * kernel_height + row) * kernel_width + column) * channels;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE bool holds(int row, int column) const {
    return row >= 0 && row < height && column >= 0 && column < width;
  }
};

/// One element of y = f(x * w + bias).
template <typename T, typename To>
struct DirectForward {
  ConvolutionShape s;
  const T* x;
  const T* kernel;
  const float* bias;  ///< may be null
  To* y;
  ActivationFunction function;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const auto [image, row, column, filter] = nhwc_index_of(i, s.out_height, s.out_width, s.filters);
    float sum = bias != nullptr ? bias[filter] : 0.0F;
    for (int a = 0; a < s.kernel_height; ++a) {
      for (int b = 0; b < s.kernel_width; ++b) {
        const int h = row * s.stride_height - s.above + a * s.dilation_height;
        const int w = column * s.stride_width - s.before + b * s.dilation_width;
        if (!s.holds(h, w)) continue;
        const T* from = x + s.x_at(image, h, w);
        const T* factors = kernel + s.kernel_at(filter, a, b);
        for (int c = 0; c < s.channels; ++c) sum += static_cast<float>(from[c]) * static_cast<float>(factors[c]);
      }
    }
    y[i] = activate(function, sum);
  }
};

/// The term that one output pixel adds to the gradient of one kernel element.
template <typename T>
struct DirectWeightsTerm {
  ConvolutionShape s;
  const T* x;
  const T* y_gradient;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE float operator()(Index element, Index pixel) const {
    const auto [filter, a, b, c] = nhwc_index_of(element, s.kernel_height, s.kernel_width, s.channels);
    const NhwcIndex at = nhwc_index_of(pixel, s.out_height, s.out_width, 1);
    const int h = at.row * s.stride_height - s.above + a * s.dilation_height;
    const int w = at.column * s.stride_width - s.before + b * s.dilation_width;
    if (!s.holds(h, w)) return 0.0F;
    return static_cast<float>(x[s.x_at(at.image, h, w) + static_cast<std::size_t>(c)]) *
           static_cast<float>(y_gradient[static_cast<std::size_t>(pixel) * s.filters + filter]);
  }
};

/// One element of the input's gradient, multiplied by the derivative of the activation that produced x.
template <typename T>
struct DirectData {
  ConvolutionShape s;
  const T* x;
  const T* kernel;
  const T* y_gradient;
  T* x_gradient;
  ActivationFunction function;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const auto [image, h, w, c] = nhwc_index_of(i, s.height, s.width, s.channels);
    float sum = 0;
    for (int a = 0; a < s.kernel_height; ++a) {
      const int down = h + s.above - a * s.dilation_height;
      if (down < 0 || down % s.stride_height != 0 || down / s.stride_height >= s.out_height) continue;
      for (int b = 0; b < s.kernel_width; ++b) {
        const int right = w + s.before - b * s.dilation_width;
        if (right < 0 || right % s.stride_width != 0 || right / s.stride_width >= s.out_width) continue;
        const T* gradients = y_gradient + s.y_at(image, down / s.stride_height, right / s.stride_width);
        for (int filter = 0; filter < s.filters; ++filter) {
          sum += static_cast<float>(gradients[filter]) *
                 static_cast<float>(kernel[s.kernel_at(filter, a, b) + static_cast<std::size_t>(c)]);
        }
      }
    }
    x_gradient[i] = activation_gradient(function, x[i], sum);
  }
};

}  // namespace lockstep::cuda
