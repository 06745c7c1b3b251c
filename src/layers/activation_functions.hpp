// The table of activation functions, which both the CPU and the CUDA backend compile: Keras' name, the value and the
// gradient. One row per kind; a kind without a row does not compile.
//
// A function whose gradient is computable from the output is fused into the operation before it, whose kernel
// overwrites the input. Any other function is a separate operation, which keeps its input for backward.
#pragma once

#include "core/host_device.hpp"

#include <lockstep/layers/activation.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

namespace lockstep {

/// What a function's gradient is computed from; `none` if the function is not elementwise.
enum class Derivative { from_output, from_input, none };

/// The defaults of rows. `value(x, parameter)` is f(x). `gradient(v, gradient, parameter)` is gradient * f'(x), where v
/// is f(x) or x, as `derivative` says.
struct ElementwiseRow {
  static constexpr auto derivative = Derivative::from_output;
  static constexpr bool has_parameter = false;  ///< not described by its name: only a layer of its own applies it
};

template <ActivationFunction::Kind>
struct ActivationRow;

template <>
struct ActivationRow<ActivationFunction::Kind::linear> : ElementwiseRow {
  static constexpr std::string_view keras_name = "linear";
  LOCKSTEP_HOST_DEVICE static float value(float x, float /*parameter*/) { return x; }
  LOCKSTEP_HOST_DEVICE static float gradient(float /*y*/, float gradient, float /*parameter*/) { return gradient; }
};

template <>
struct ActivationRow<ActivationFunction::Kind::relu> : ElementwiseRow {
  static constexpr std::string_view keras_name = "relu";
  LOCKSTEP_HOST_DEVICE static float value(float x, float /*parameter*/) { return x > 0.0F ? x : 0.0F; }
  LOCKSTEP_HOST_DEVICE static float gradient(float y, float gradient, float /*parameter*/) {
    return y > 0.0F ? gradient : 0.0F;
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::sigmoid> : ElementwiseRow {
  static constexpr std::string_view keras_name = "sigmoid";
  LOCKSTEP_HOST_DEVICE static float value(float x, float /*parameter*/) { return 1.0F / (1.0F + std::exp(-x)); }
  LOCKSTEP_HOST_DEVICE static float gradient(float y, float gradient, float /*parameter*/) {
    return gradient * y * (1.0F - y);
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::tanh> : ElementwiseRow {
  static constexpr std::string_view keras_name = "tanh";
  LOCKSTEP_HOST_DEVICE static float value(float x, float /*parameter*/) { return std::tanh(x); }
  LOCKSTEP_HOST_DEVICE static float gradient(float y, float gradient, float /*parameter*/) {
    return gradient * (1.0F - y * y);
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::softmax> : ElementwiseRow {
  static constexpr std::string_view keras_name = "softmax";
  static constexpr auto derivative = Derivative::none;
};

/// Calls visitor(ActivationRow<kind>()) for the row of `kind`.
template <typename Visitor>
LOCKSTEP_HOST_DEVICE constexpr void visit_activation(ActivationFunction::Kind kind, Visitor&& visitor) {
  const auto visit = [&]<std::size_t... I>(std::index_sequence<I...>) {
    (void)((static_cast<std::size_t>(kind) == I
                ? (visitor(ActivationRow<static_cast<ActivationFunction::Kind>(I)>()), true)
                : false) ||
           ...);
  };
  visit(std::make_index_sequence<ActivationFunction::num_kinds>());
}

[[nodiscard]] constexpr Derivative derivative_of(ActivationFunction function) {
  auto derivative = Derivative::none;
  visit_activation(function.kind, [&](auto row) { derivative = decltype(row)::derivative; });
  return derivative;
}

[[nodiscard]] constexpr bool is_elementwise(ActivationFunction function) {
  return derivative_of(function) != Derivative::none;
}

[[nodiscard]] constexpr bool has_parameter(ActivationFunction function) {
  bool has = false;
  visit_activation(function.kind, [&](auto row) { has = decltype(row)::has_parameter; });
  return has;
}

/// f(x) for an elementwise function; x for any other.
LOCKSTEP_HOST_DEVICE inline float activate(ActivationFunction function, float x) {
  float value = x;
  visit_activation(function.kind, [&](auto row) {
    if constexpr (decltype(row)::derivative != Derivative::none) value = row.value(x, function.parameter);
  });
  return value;
}

/// gradient * f'(x) for an elementwise function, where v is f(x), or x if the derivative is computed from the input;
/// the gradient itself for any other.
LOCKSTEP_HOST_DEVICE inline float activation_gradient(ActivationFunction function, float v, float gradient) {
  float result = gradient;
  visit_activation(function.kind, [&](auto row) {
    if constexpr (decltype(row)::derivative != Derivative::none) {
      result = row.gradient(v, gradient, function.parameter);
    }
  });
  return result;
}

/// The functions that a name describes, in the order of their kinds: those without a parameter.
[[nodiscard]] constexpr auto named_activations() {
  constexpr auto of_kind = [](std::size_t i) { return ActivationFunction{static_cast<ActivationFunction::Kind>(i)}; };
  constexpr std::size_t count = [&] {
    std::size_t named = 0;
    for (std::size_t i = 0; i < ActivationFunction::num_kinds; ++i) named += has_parameter(of_kind(i)) ? 0 : 1;
    return named;
  }();
  std::array<ActivationFunction, count> functions;
  for (std::size_t i = 0, at = 0; i < ActivationFunction::num_kinds; ++i) {
    if (!has_parameter(of_kind(i))) functions[at++] = of_kind(i);
  }
  return functions;
}

}  // namespace lockstep
