// The arithmetic of windows that slide over images and sequences, as convolutions and poolings do.
#pragma once

#include <lockstep/layers/geometry.hpp>

#include <algorithm>
#include <cstdint>

namespace lockstep {

/// One axis of a convolution or pooling. All numbers are positive.
struct Window {
  std::int64_t input = 1;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  Padding padding = Padding::valid;

  /// The size of the window including dilation, in cells.
  [[nodiscard]] constexpr std::int64_t effective_kernel() const noexcept { return dilation * (kernel - 1) + 1; }

  /// The number of windows; 0 if a window without padding does not fit.
  [[nodiscard]] constexpr std::int64_t output() const noexcept {
    if (padding != Padding::valid) return (input + stride - 1) / stride;
    return input < effective_kernel() ? 0 : (input - effective_kernel()) / stride + 1;
  }

  /// Cells of padding on both sides together.
  [[nodiscard]] constexpr std::int64_t pad_total() const noexcept {
    if (padding == Padding::valid) return 0;
    if (padding == Padding::causal) return effective_kernel() - 1;
    return std::max<std::int64_t>((output() - 1) * stride + effective_kernel() - input, 0);
  }

  /// Cells of padding before the first cell. If the total of `same` is odd, the larger half is after the last cell.
  [[nodiscard]] constexpr std::int64_t pad_before() const noexcept {
    return padding == Padding::causal ? pad_total() : pad_total() / 2;
  }
  [[nodiscard]] constexpr std::int64_t pad_after() const noexcept { return pad_total() - pad_before(); }

  /// The size of the axis that a transposed convolution makes of `steps` cells: the smallest on which this many
  /// windows that overlap or touch fit; for `same` a multiple of the stride.
  [[nodiscard]] constexpr std::int64_t transposed_output(std::int64_t steps) const noexcept {
    if (padding != Padding::valid) return steps * stride;
    return (steps - 1) * stride + std::max(effective_kernel(), stride);
  }

  friend bool operator==(const Window&, const Window&) = default;
};

/// The windows of a layer. A sequence is an image of one row.
struct Windows {
  Window rows;
  Window columns;

  [[nodiscard]] static Windows of(Size2D kernel, Size2D strides, Size2D dilation, Padding padding) {
    return {{.kernel = kernel.height, .stride = strides.height, .dilation = dilation.height, .padding = padding},
            {.kernel = kernel.width, .stride = strides.width, .dilation = dilation.width, .padding = padding}};
  }
  [[nodiscard]] static Windows of(Size1D kernel, Size1D strides, Size1D dilation, Padding padding) {
    return of(Size2D(1, kernel.length), Size2D(1, strides.length), Size2D(1, dilation.length), padding);
  }

  /// The same windows over an image of this size.
  [[nodiscard]] constexpr Windows over(std::int64_t height, std::int64_t width) const {
    Windows windows = *this;
    windows.rows.input = height;
    windows.columns.input = width;
    return windows;
  }

  /// The windows of a transposed convolution that reads an image of this size. They slide over what it writes.
  [[nodiscard]] constexpr Windows transposed_over(std::int64_t height, std::int64_t width) const {
    return over(rows.transposed_output(height), columns.transposed_output(width));
  }

  /// A single window that covers an image of this size.
  [[nodiscard]] static constexpr Windows whole(std::int64_t height, std::int64_t width) {
    return {{.input = height, .kernel = height, .stride = height}, {.input = width, .kernel = width, .stride = width}};
  }

  friend bool operator==(const Windows&, const Windows&) = default;
};

}  // namespace lockstep
