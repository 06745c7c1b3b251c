// How a backend computes a convolution: the algorithm of each pass, and the layouts in which its kernels read and
// write. It is part of the plan, so ranks compare it and backups record it.
#pragma once

#include "graph/layout.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

enum class ConvolutionAlgorithm : std::uint8_t {
  unspecified,          ///< the backend's library chooses when it compiles
  direct_blocked,       ///< oneDNN, on blocks of 16 or 8 channels
  direct_nhwc,          ///< oneDNN, channels last
  winograd,             ///< our own, for 3 x 3 kernels: see backend/cpu/winograd/convolution.hpp
  direct_few_channels,  ///< our own loops, for images of few channels: see backend/cpu/few_channels.hpp
  direct_depthwise,     ///< our own loops, for depthwise weight gradients: see backend/cpu/depthwise.hpp
};

inline constexpr std::array algorithm_names{
    std::string_view("unspecified"), std::string_view("direct_blocked"),      std::string_view("direct_nhwc"),
    std::string_view("winograd"),    std::string_view("direct_few_channels"), std::string_view("direct_depthwise")};

[[nodiscard]] constexpr std::string_view to_string(ConvolutionAlgorithm algorithm) noexcept {
  return algorithm_names[static_cast<std::size_t>(algorithm)];
}

/// Whether its kernels read and write the operation's own tensors, whose layouts must then be those of the choice.
[[nodiscard]] constexpr bool reads_tensors_as_they_are(ConvolutionAlgorithm algorithm) noexcept {
  return algorithm == ConvolutionAlgorithm::direct_few_channels || algorithm == ConvolutionAlgorithm::direct_depthwise;
}

/// All of our own kernels read the convolution's kernel in Keras' order.
[[nodiscard]] constexpr bool reads_keras_kernel(ConvolutionAlgorithm algorithm) noexcept {
  return reads_tensors_as_they_are(algorithm) || algorithm == ConvolutionAlgorithm::winograd;
}

struct ConvolutionChoice {
  ConvolutionAlgorithm forward = ConvolutionAlgorithm::unspecified;
  ConvolutionAlgorithm data = ConvolutionAlgorithm::unspecified;     ///< gradient of the input
  ConvolutionAlgorithm weights = ConvolutionAlgorithm::unspecified;  ///< gradient of the kernel
  /// What the kernels read and write. A tensor of another layout is converted before or after the kernel.
  Layout input = Layout::nhwc;
  Layout output = Layout::nhwc;

  friend bool operator==(const ConvolutionChoice&, const ConvolutionChoice&) = default;
};

}  // namespace lockstep
