// Functors of convolutions of images with one channel, such as the first layer of a model of gray images, with square
// kernels of `size` x `size` taps. Such products are too narrow for the libraries' tiles, and limited by the memory of
// the output. So each functor computes a row of one filter's outputs, with the filter's kernel in registers, and
// neighbours in the index are filters, which are adjacent in memory.
#pragma once

#include "backend/cuda/direct_convolution_functors.hpp"

#include <cstddef>

namespace lockstep::cuda {

/// The pixel below a tap of the kernel, at one place of the output.
struct OneChannelPatch {
  ConvolutionShape s;
  int above, before;  ///< row and column of the first tap's pixel

  LOCKSTEP_HOST_DEVICE OneChannelPatch(const ConvolutionShape& shape, int row, int column)
      : s(shape), above(row * shape.stride_height - shape.above), before(column * shape.stride_width - shape.before) {}

  /// 0 outside the image.
  template <typename T>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float pixel(const T* image, int a, int b) const {
    const int row = above + a * s.dilation_height;
    const int column = before + b * s.dilation_width;
    return s.holds(row, column) ? static_cast<float>(image[row * s.width + column]) : 0.0F;
  }
};

/// y = f(x * w + bias) of the row i / filters of all images' outputs, and of the filter i % filters.
template <typename T, typename To, int size>
struct OneChannelForward {
  ConvolutionShape s;
  const T* x;
  const T* kernel;
  const float* bias;  ///< may be null
  To* y;
  ActivationFunction function;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const Index filter = i % static_cast<Index>(s.filters);
    const std::size_t line = i / static_cast<Index>(s.filters);
    const T* image = x + s.x_at(line / static_cast<std::size_t>(s.out_height), 0, 0);
    const int row = static_cast<int>(line % static_cast<std::size_t>(s.out_height));
    float weights[size * size];  // NOLINT(*-avoid-c-arrays): registers
    for (int tap = 0; tap < size * size; ++tap) weights[tap] = kernel[filter * (size * size) + tap];
    const float start = bias != nullptr ? bias[filter] : 0.0F;
    To* to = y + line * static_cast<std::size_t>(s.out_width * s.filters) + filter;
    for (int column = 0; column < s.out_width; ++column) {
      const OneChannelPatch patch(s, row, column);
      float sum = start;
      for (int a = 0; a < size; ++a) {
        for (int b = 0; b < size; ++b) sum += patch.pixel(image, a, b) * weights[a * size + b];
      }
      to[static_cast<std::size_t>(column) * static_cast<std::size_t>(s.filters)] = activate(function, sum);
    }
  }
};

/// The terms of the kernel's gradient and of the bias gradient, in one pass over the output's gradient.
template <typename T, int size>
struct OneChannelWeightsTerms {
  static constexpr int taps = size * size;
  static constexpr int num_sums = taps + 1;  ///< of a filter: the taps of its kernel, then its bias

  ConvolutionShape s;
  const T* x;
  const T* y;
  const T* y_gradient;
  ActivationFunction derived;  ///< the gradient is multiplied by its derivative at y

  /// Adds those of a row of all images' outputs.
  LOCKSTEP_HOST_DEVICE void operator()(Index line, Index filter, float* sums) const {
    const T* image = x + s.x_at(line / static_cast<Index>(s.out_height), 0, 0);
    const int row = static_cast<int>(line % static_cast<Index>(s.out_height));
    const std::size_t begin = static_cast<std::size_t>(line) * static_cast<std::size_t>(s.out_width * s.filters);
    for (int column = 0; column < s.out_width; ++column) {
      const std::size_t at = begin + static_cast<std::size_t>(column) * static_cast<std::size_t>(s.filters) + filter;
      const float given = y_gradient[at];
      const float gradient =
          derived.kind == ActivationFunction::Kind::linear ? given : activation_gradient(derived, y[at], given);
      const OneChannelPatch patch(s, row, column);
      for (int a = 0; a < size; ++a) {
        for (int b = 0; b < size; ++b) sums[a * size + b] += gradient * patch.pixel(image, a, b);
      }
      sums[taps] += gradient;
    }
  }
};

/// Stores a sum of OneChannelWeightsTerms. Sums are ordered by filter, then as the terms are.
struct StoreOneChannelSum {
  int taps;
  float* kernel_gradient;
  float* bias_gradient;  ///< may be null

  LOCKSTEP_HOST_DEVICE void operator()(Index element, double sum) const {
    const Index filter = element / static_cast<Index>(taps + 1);
    const Index tap = element % static_cast<Index>(taps + 1);
    if (tap < static_cast<Index>(taps)) {
      kernel_gradient[filter * static_cast<Index>(taps) + tap] = static_cast<float>(sum);
    } else if (bias_gradient != nullptr) {
      bias_gradient[filter] = static_cast<float>(sum);
    }
  }
};

}  // namespace lockstep::cuda
