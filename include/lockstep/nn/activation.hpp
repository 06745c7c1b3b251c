// The activation functions, under Keras' names.
#pragma once

#include <string_view>

namespace lockstep {

enum class ActivationFunction { linear, relu, sigmoid, tanh, softmax };

/// `tanh` alone would collide with the C library's function, so the constants live here and the harmless ones are
/// also visible as lockstep::relu and so on.
namespace activations {
inline constexpr auto linear = ActivationFunction::linear;
inline constexpr auto relu = ActivationFunction::relu;
inline constexpr auto sigmoid = ActivationFunction::sigmoid;
inline constexpr auto tanh = ActivationFunction::tanh;
inline constexpr auto softmax = ActivationFunction::softmax;
}  // namespace activations

using activations::linear;
using activations::relu;
using activations::sigmoid;
using activations::softmax;

/// "relu"; the name Keras writes into files.
[[nodiscard]] std::string_view name_of(ActivationFunction function) noexcept;

}  // namespace lockstep
