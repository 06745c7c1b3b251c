// Activation functions, under Keras' names, and the layers that apply one.
#pragma once

#include <lockstep/layers/callable.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

/// A function that is applied to a layer's output. layers/activation_functions.hpp has the formulas.
struct ActivationFunction {
  enum class Kind : std::uint8_t { linear, relu, sigmoid, tanh, softmax, count_ };
  static constexpr std::size_t num_kinds = static_cast<std::size_t>(Kind::count_);

  constexpr ActivationFunction() noexcept = default;
  constexpr explicit ActivationFunction(Kind kind_, float parameter_ = 0) noexcept
      : kind(kind_), parameter(parameter_) {}
  /// From Keras' name, such as "relu". Throws UsageError for an unknown name.
  ActivationFunction(const char* name);  // NOLINT(google-explicit-constructor): as Keras reads "relu"

  Kind kind = Kind::linear;
  float parameter = 0;  ///< for kinds that have one, such as a slope; else 0

  static const ActivationFunction linear, relu, sigmoid, tanh, softmax;

  friend constexpr bool operator==(const ActivationFunction&, const ActivationFunction&) = default;
};

inline constexpr ActivationFunction ActivationFunction::linear{Kind::linear};
inline constexpr ActivationFunction ActivationFunction::relu{Kind::relu};
inline constexpr ActivationFunction ActivationFunction::sigmoid{Kind::sigmoid};
inline constexpr ActivationFunction ActivationFunction::tanh{Kind::tanh};
inline constexpr ActivationFunction ActivationFunction::softmax{Kind::softmax};

/// A namespace, because `tanh` would collide with the C library's function. The constants that do not collide are also
/// available as lockstep::relu and so on.
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

/// The name in Keras' files: "relu".
[[nodiscard]] std::string_view keras_name(ActivationFunction function) noexcept;

/// Applies a function to its input, of any shape. softmax runs over the last axis.
struct Activation : CallableLayer<Activation> {
  explicit Activation(ActivationFunction function_, std::string name_ = {})
      : function(function_), name(std::move(name_)) {}
  ActivationFunction function;
  std::string name;
};

}  // namespace lockstep
