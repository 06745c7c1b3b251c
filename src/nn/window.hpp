// The arithmetic of a window that slides along one axis: what a convolution and a pooling share.
#pragma once

#include <lockstep/nn/layers.hpp>

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

  /// How far the window reaches, holes included.
  [[nodiscard]] constexpr std::int64_t reach() const noexcept { return dilation * (kernel - 1) + 1; }

  /// 0 where a window without padding does not fit.
  [[nodiscard]] constexpr std::int64_t output() const noexcept {
    if (padding == Padding::same) return (input + stride - 1) / stride;
    return input < reach() ? 0 : (input - reach()) / stride + 1;
  }

  /// Cells added on both sides together.
  [[nodiscard]] constexpr std::int64_t pad_total() const noexcept {
    if (padding == Padding::valid) return 0;
    return std::max<std::int64_t>((output() - 1) * stride + reach() - input, 0);
  }

  /// Cells added before the first one; of an odd total the larger half comes after the last.
  [[nodiscard]] constexpr std::int64_t pad_before() const noexcept { return pad_total() / 2; }
  [[nodiscard]] constexpr std::int64_t pad_after() const noexcept { return pad_total() - pad_before(); }
};

}  // namespace lockstep
