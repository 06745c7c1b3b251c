// Functors of pooling over NHWC images. Backward runs one thread per input pixel, which visits the windows that contain
// the pixel, so it needs no atomic additions and sums in a fixed order.
#pragma once

#include "backend/cuda/elementwise_functors.hpp"
#include "backend/cuda/nhwc_index.hpp"

#include <cstddef>
#include <cstdint>

namespace lockstep::cuda {

/// One axis of a sliding window.
struct Axis {
  int input;
  int output;
  int kernel;
  int stride;
  int pad;  ///< padding before the first pixel

  [[nodiscard]] LOCKSTEP_HOST_DEVICE int begin(int window) const {
    const int origin = window * stride - pad;
    return origin > 0 ? origin : 0;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE int end(int window) const {
    const int past = window * stride - pad + kernel;
    return past < input ? past : input;
  }
  /// The windows [first_window, past_window) contain the pixel.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE int first_window(int pixel) const {
    const int numerator = pixel + pad - kernel + 1;
    return numerator > 0 ? (numerator + stride - 1) / stride : 0;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE int past_window(int pixel) const {
    const int last = (pixel + pad) / stride;
    return last < output ? last + 1 : output;
  }
};

struct Pooling {
  Axis rows;
  Axis columns;
  int channels;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE NhwcIndex input_index(Index element) const {
    return nhwc_index_of(element, rows.input, columns.input, channels);
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE NhwcIndex output_index(Index element) const {
    return nhwc_index_of(element, rows.output, columns.output, channels);
  }
  /// The number of pixels in a window, without padding.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE int pixels(int row, int column) const {
    return (rows.end(row) - rows.begin(row)) * (columns.end(column) - columns.begin(column));
  }
};

constexpr std::uint8_t no_argmax = 255;  ///< the maximum is not positive, so relu's gradient is zero

template <typename T>
struct MaxPool {
  Pooling shape;
  const T* x;
  T* y;
  std::uint8_t* argmax;
  bool relu;  ///< a relu produced x: backward includes its derivative

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const auto [image, row, column, channel] = shape.output_index(i);
    const T* plane = x + image * shape.rows.input * shape.columns.input * shape.channels + channel;
    const int top = row * shape.rows.stride - shape.rows.pad;
    const int left = column * shape.columns.stride - shape.columns.pad;
    float best = 0;
    int who = -1;
    for (int h = shape.rows.begin(row); h < shape.rows.end(row); ++h) {
      for (int w = shape.columns.begin(column); w < shape.columns.end(column); ++w) {
        const float value = plane[static_cast<std::size_t>(h * shape.columns.input + w) * shape.channels];
        if (who >= 0 && !(value > best)) continue;
        best = value;
        who = (h - top) * shape.columns.kernel + (w - left);
      }
    }
    y[i] = best;
    argmax[i] = static_cast<std::uint8_t>(relu && !(best > 0.0F) ? no_argmax : who);
  }
};

template <typename T>
struct MaxPoolBackward {
  Pooling shape;
  const T* x;
  const T* y_gradient;
  const std::uint8_t* argmax;
  T* x_gradient;
  ActivationFunction function;  ///< the activation that produced x; linear for relu, which `argmax` accounts for

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const auto [image, h, w, channel] = shape.input_index(i);
    const std::size_t plane = image * shape.rows.output * shape.columns.output * shape.channels + channel;
    float sum = 0;
    for (int row = shape.rows.first_window(h); row < shape.rows.past_window(h); ++row) {
      for (int column = shape.columns.first_window(w); column < shape.columns.past_window(w); ++column) {
        const std::size_t at = plane + static_cast<std::size_t>(row * shape.columns.output + column) * shape.channels;
        const int number = (h - row * shape.rows.stride + shape.rows.pad) * shape.columns.kernel +
                           (w - column * shape.columns.stride + shape.columns.pad);
        if (argmax[at] == number) sum += static_cast<float>(y_gradient[at]);
      }
    }
    x_gradient[i] = activation_gradient(function, x[i], sum);
  }
};

template <typename T>
struct AveragePool {
  Pooling shape;
  const T* x;
  T* y;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const auto [image, row, column, channel] = shape.output_index(i);
    const T* plane = x + image * shape.rows.input * shape.columns.input * shape.channels + channel;
    float sum = 0;
    for (int h = shape.rows.begin(row); h < shape.rows.end(row); ++h) {
      for (int w = shape.columns.begin(column); w < shape.columns.end(column); ++w) {
        sum += static_cast<float>(plane[static_cast<std::size_t>(h * shape.columns.input + w) * shape.channels]);
      }
    }
    y[i] = sum / static_cast<float>(shape.pixels(row, column));
  }
};

template <typename T>
struct AveragePoolBackward {
  Pooling shape;
  const T* x;
  const T* y_gradient;
  T* x_gradient;
  ActivationFunction function;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const auto [image, h, w, channel] = shape.input_index(i);
    const std::size_t plane = image * shape.rows.output * shape.columns.output * shape.channels + channel;
    float sum = 0;
    for (int row = shape.rows.first_window(h); row < shape.rows.past_window(h); ++row) {
      for (int column = shape.columns.first_window(w); column < shape.columns.past_window(w); ++column) {
        const std::size_t at = plane + static_cast<std::size_t>(row * shape.columns.output + column) * shape.channels;
        sum += static_cast<float>(y_gradient[at]) / static_cast<float>(shape.pixels(row, column));
      }
    }
    x_gradient[i] = activation_gradient(function, x[i], sum);
  }
};

}  // namespace lockstep::cuda
