// How fast the algorithms of a convolution are expected to be. The table uses no clock, so every run on the same kind
// of CPU chooses alike. What an algorithm can compute, its supports_... functions and oneDNN say.
#pragma once

#include "backend/cpu/instruction_set.hpp"
#include "graph/convolution_choice.hpp"
#include "graph/tensor_spec.hpp"

#include <cstdint>
#include <span>

namespace lockstep {

/// Convolutions whose kernels differ.
enum class ConvolutionKind : std::uint8_t {
  ordinary,
  few_channels,  ///< the windows slide over an image of at most `few_channels` channels
  grouped,       ///< groups of channels are convolved apart
  depthwise,     ///< every channel by itself
};

inline constexpr std::int64_t few_channels = 4;

/// How fast an algorithm is from an instruction set on, up to the next row of the same algorithm. Rates are
/// multiply-adds per nanosecond on one core; 0: not offered.
struct ConvolutionRow {
  ConvolutionAlgorithm algorithm;
  InstructionSet from;
  ElementType type;
  ConvolutionKind kind;
  Layout input;   ///< of the image: a transposed convolution's output
  Layout output;  ///< of the map
  double forward_rate;
  double data_rate;
  double weights_rate;
};

[[nodiscard]] std::span<const ConvolutionRow> convolution_table() noexcept;

/// Bytes per nanosecond that a conversion between layouts reads and writes.
inline constexpr double conversion_rate = 8;

/// Multiply-adds per nanosecond of matrix products (Dense) on one core, for the warning of slow bfloat16.
[[nodiscard]] double product_rate(InstructionSet set, ElementType type) noexcept;

}  // namespace lockstep
