// Bodies of pooling over images in Keras' order. Backward asks for each input cell which windows it was in, so that
// nothing is added twice at once and sums have a fixed order.
#pragma once

#include "backend/cuda/elements.hpp"
#include "backend/cuda/image_place.hpp"

#include <cstddef>
#include <cstdint>

namespace lockstep::cuda {

/// One axis of a sliding window.
struct Axis {
  int input;
  int output;
  int kernel;
  int stride;
  int pad;  ///< before the first cell

  [[nodiscard]] LOCKSTEP_HOST_DEVICE int begin(int place) const {
    const int origin = place * stride - pad;
    return origin > 0 ? origin : 0;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE int end(int place) const {
    const int past = place * stride - pad + kernel;
    return past < input ? past : input;
  }
  /// The windows [first, past) that hold the cell.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE int first_window(int cell) const {
    const int numerator = cell + pad - kernel + 1;
    return numerator > 0 ? (numerator + stride - 1) / stride : 0;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE int past_window(int cell) const {
    const int last = (cell + pad) / stride;
    return last < output ? last + 1 : output;
  }
};

struct Pooling {
  Axis rows;
  Axis columns;
  int channels;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE ImagePlace input_place(Index element) const {
    return place_in_images(element, rows.input, columns.input, channels);
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE ImagePlace output_place(Index element) const {
    return place_in_images(element, rows.output, columns.output, channels);
  }
  /// How many cells a window holds; those that padding added do not count.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE int cells(int row, int column) const {
    return (rows.end(row) - rows.begin(row)) * (columns.end(column) - columns.begin(column));
  }
};

constexpr std::uint8_t nobody = 255;  ///< the window's largest was at or below zero, where relu is flat

template <typename T>
struct MaxPool {
  Pooling shape;
  const T* x;
  T* y;
  std::uint8_t* winner;
  bool relu;  ///< x was made by one, so that backward can pass it on the way

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const auto [image, row, column, channel] = shape.output_place(i);
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
    winner[i] = static_cast<std::uint8_t>(relu && !(best > 0.0F) ? nobody : who);
  }
};

template <typename T>
struct MaxPoolBackward {
  Pooling shape;
  const T* x;
  const T* y_gradient;
  const std::uint8_t* winner;
  T* x_gradient;
  ActivationFunction function;  ///< that made x; linear where forward saw to a relu

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const auto [image, h, w, channel] = shape.input_place(i);
    const std::size_t plane = image * shape.rows.output * shape.columns.output * shape.channels + channel;
    float sum = 0;
    for (int row = shape.rows.first_window(h); row < shape.rows.past_window(h); ++row) {
      for (int column = shape.columns.first_window(w); column < shape.columns.past_window(w); ++column) {
        const std::size_t at = plane + static_cast<std::size_t>(row * shape.columns.output + column) * shape.channels;
        const int number = (h - row * shape.rows.stride + shape.rows.pad) * shape.columns.kernel +
                           (w - column * shape.columns.stride + shape.columns.pad);
        if (winner[at] == number) sum += static_cast<float>(y_gradient[at]);
      }
    }
    x_gradient[i] = through(function, x[i], sum);
  }
};

template <typename T>
struct AveragePool {
  Pooling shape;
  const T* x;
  T* y;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const auto [image, row, column, channel] = shape.output_place(i);
    const T* plane = x + image * shape.rows.input * shape.columns.input * shape.channels + channel;
    float sum = 0;
    for (int h = shape.rows.begin(row); h < shape.rows.end(row); ++h) {
      for (int w = shape.columns.begin(column); w < shape.columns.end(column); ++w) {
        sum += static_cast<float>(plane[static_cast<std::size_t>(h * shape.columns.input + w) * shape.channels]);
      }
    }
    y[i] = sum / static_cast<float>(shape.cells(row, column));
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
    const auto [image, h, w, channel] = shape.input_place(i);
    const std::size_t plane = image * shape.rows.output * shape.columns.output * shape.channels + channel;
    float sum = 0;
    for (int row = shape.rows.first_window(h); row < shape.rows.past_window(h); ++row) {
      for (int column = shape.columns.first_window(w); column < shape.columns.past_window(w); ++column) {
        const std::size_t at = plane + static_cast<std::size_t>(row * shape.columns.output + column) * shape.channels;
        sum += static_cast<float>(y_gradient[at]) / static_cast<float>(shape.cells(row, column));
      }
    }
    x_gradient[i] = through(function, x[i], sum);
  }
};

}  // namespace lockstep::cuda
