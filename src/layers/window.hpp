// The arithmetic of a window that slides along an axis, as convolutions and poolings do.
#pragma once

#include <lockstep/layers/geometry.hpp>
#include <lockstep/layers/layer.hpp>

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
    if (padding == Padding::same) return (input + stride - 1) / stride;
    return input < effective_kernel() ? 0 : (input - effective_kernel()) / stride + 1;
  }

  /// Cells of padding on both sides together.
  [[nodiscard]] constexpr std::int64_t pad_total() const noexcept {
    if (padding == Padding::valid) return 0;
    return std::max<std::int64_t>((output() - 1) * stride + effective_kernel() - input, 0);
  }

  /// Cells of padding before the first cell. If the total is odd, the larger half is after the last cell.
  [[nodiscard]] constexpr std::int64_t pad_before() const noexcept { return pad_total() / 2; }
  [[nodiscard]] constexpr std::int64_t pad_after() const noexcept { return pad_total() - pad_before(); }
};

/// The windows of a pooling layer over images of height x width; a single window for global pooling. Throws
/// InternalError for any other layer.
struct PoolingWindows {
  Window rows;
  Window columns;
};
[[nodiscard]] PoolingWindows pooling_windows(const Layer& layer, std::int64_t height, std::int64_t width);

}  // namespace lockstep
