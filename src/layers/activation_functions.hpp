// The table of activation functions, which both the CPU and the CUDA backend compile: Keras' name, the value and the
// gradient. One row per kind; a kind without a row does not compile. One file, because it is one table.
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

/// The defaults of rows. `value(x, f)` is f(x). `gradient(v, gradient, f)` is gradient * f'(x), where v is f(x) or x,
/// as `derivative` says.
struct ElementwiseRow {
  static constexpr auto derivative = Derivative::from_output;
  static constexpr bool has_parameter = false;         ///< so only its own layer can apply it, not activation="..."
  static constexpr float default_parameter = 0;        ///< of the function that the name describes
  static constexpr std::string_view keras_alias = {};  ///< another name that files may have
};

template <ActivationFunction::Kind>
struct ActivationRow;

template <>
struct ActivationRow<ActivationFunction::Kind::linear> : ElementwiseRow {
  static constexpr std::string_view keras_name = "linear";
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) { return x; }
  LOCKSTEP_HOST_DEVICE static float gradient(float /*y*/, float gradient, const ActivationFunction& /*f*/) {
    return gradient;
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::relu> : ElementwiseRow {
  static constexpr std::string_view keras_name = "relu";
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) { return x < 0.0F ? 0.0F : x; }
  LOCKSTEP_HOST_DEVICE static float gradient(float y, float gradient, const ActivationFunction& /*f*/) {
    return y > 0.0F ? gradient : 0.0F;
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::sigmoid> : ElementwiseRow {
  static constexpr std::string_view keras_name = "sigmoid";
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) {
    return 1.0F / (1.0F + std::exp(-x));
  }
  LOCKSTEP_HOST_DEVICE static float gradient(float y, float gradient, const ActivationFunction& /*f*/) {
    return gradient * y * (1.0F - y);
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::tanh> : ElementwiseRow {
  static constexpr std::string_view keras_name = "tanh";
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) { return std::tanh(x); }
  LOCKSTEP_HOST_DEVICE static float gradient(float y, float gradient, const ActivationFunction& /*f*/) {
    return gradient * (1.0F - y * y);
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::softmax> : ElementwiseRow {
  static constexpr std::string_view keras_name = "softmax";
  static constexpr auto derivative = Derivative::none;
};

template <>
struct ActivationRow<ActivationFunction::Kind::relu6> : ElementwiseRow {
  static constexpr std::string_view keras_name = "relu6";
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) {
    return x < 0.0F ? 0.0F : (x > 6.0F ? 6.0F : x);
  }
  LOCKSTEP_HOST_DEVICE static float gradient(float y, float gradient, const ActivationFunction& /*f*/) {
    return y > 0.0F && y < 6.0F ? gradient : 0.0F;
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::leaky_relu> : ElementwiseRow {
  static constexpr std::string_view keras_name = "leaky_relu";
  static constexpr float default_parameter = activations::leaky_relu.parameter;
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& f) {
    return x > 0.0F ? x : f.parameter * x;
  }
  LOCKSTEP_HOST_DEVICE static float gradient(float y, float gradient, const ActivationFunction& f) {
    return y > 0.0F ? gradient : f.parameter * gradient;
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::elu> : ElementwiseRow {
  static constexpr std::string_view keras_name = "elu";
  static constexpr float default_parameter = activations::elu.parameter;
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& f) {
    return x > 0.0F ? x : f.parameter * std::expm1(x);
  }
  LOCKSTEP_HOST_DEVICE static float gradient(float y, float gradient, const ActivationFunction& f) {
    return y > 0.0F ? gradient : gradient * (y + f.parameter);
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::selu> : ElementwiseRow {
  static constexpr std::string_view keras_name = "selu";
  static constexpr float scale = 1.05070098735548049F;
  static constexpr float scale_alpha = 1.75809934084737686F;  // times alpha, 1.67326324235437728
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) {
    return x > 0.0F ? scale * x : scale_alpha * std::expm1(x);
  }
  LOCKSTEP_HOST_DEVICE static float gradient(float y, float gradient, const ActivationFunction& /*f*/) {
    return gradient * (y > 0.0F ? scale : y + scale_alpha);
  }
};

/// x times the normal distribution's cumulative function.
template <>
struct ActivationRow<ActivationFunction::Kind::gelu> : ElementwiseRow {
  static constexpr std::string_view keras_name = "gelu";
  static constexpr auto derivative = Derivative::from_input;
  static constexpr float sqrt_half = 0.707106781186547524F;
  static constexpr float density_at_zero = 0.398942280401432678F;
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) {
    return 0.5F * x * (1.0F + std::erf(x * sqrt_half));
  }
  LOCKSTEP_HOST_DEVICE static float gradient(float x, float gradient, const ActivationFunction& /*f*/) {
    const float cumulative = 0.5F * (1.0F + std::erf(x * sqrt_half));
    return gradient * (cumulative + x * density_at_zero * std::exp(-0.5F * x * x));
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::silu> : ElementwiseRow {
  static constexpr std::string_view keras_name = "silu";
  static constexpr auto derivative = Derivative::from_input;
  static constexpr std::string_view keras_alias = "swish";
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) {
    return x / (1.0F + std::exp(-x));
  }
  LOCKSTEP_HOST_DEVICE static float gradient(float x, float gradient, const ActivationFunction& /*f*/) {
    const float sigmoid = 1.0F / (1.0F + std::exp(-x));
    return gradient * sigmoid * (1.0F + x * (1.0F - sigmoid));
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::softplus> : ElementwiseRow {
  static constexpr std::string_view keras_name = "softplus";
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) {
    return (x > 0.0F ? x : 0.0F) + std::log1p(std::exp(-std::abs(x)));
  }
  LOCKSTEP_HOST_DEVICE static float gradient(float y, float gradient, const ActivationFunction& /*f*/) {
    return gradient * -std::expm1(-y);
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::softsign> : ElementwiseRow {
  static constexpr std::string_view keras_name = "softsign";
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) { return x / (1.0F + std::abs(x)); }
  LOCKSTEP_HOST_DEVICE static float gradient(float y, float gradient, const ActivationFunction& /*f*/) {
    return gradient * (1.0F - std::abs(y)) * (1.0F - std::abs(y));
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::hard_sigmoid> : ElementwiseRow {
  static constexpr std::string_view keras_name = "hard_sigmoid";
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) {
    return x < -3.0F ? 0.0F : (x > 3.0F ? 1.0F : x / 6.0F + 0.5F);
  }
  LOCKSTEP_HOST_DEVICE static float gradient(float y, float gradient, const ActivationFunction& /*f*/) {
    return y > 0.0F && y < 1.0F ? gradient / 6.0F : 0.0F;
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::hard_silu> : ElementwiseRow {
  static constexpr std::string_view keras_name = "hard_silu";
  static constexpr auto derivative = Derivative::from_input;
  static constexpr std::string_view keras_alias = "hard_swish";
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) {
    return x < -3.0F ? 0.0F : (x > 3.0F ? x : x * (x / 6.0F + 0.5F));
  }
  LOCKSTEP_HOST_DEVICE static float gradient(float x, float gradient, const ActivationFunction& /*f*/) {
    return x > -3.0F ? (x < 3.0F ? gradient * (x / 3.0F + 0.5F) : gradient) : 0.0F;
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::exponential> : ElementwiseRow {
  static constexpr std::string_view keras_name = "exponential";
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) { return std::exp(x); }
  LOCKSTEP_HOST_DEVICE static float gradient(float y, float gradient, const ActivationFunction& /*f*/) {
    return gradient * y;
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::mish> : ElementwiseRow {
  static constexpr std::string_view keras_name = "mish";
  static constexpr auto derivative = Derivative::from_input;
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& f) {
    return x * std::tanh(ActivationRow<ActivationFunction::Kind::softplus>::value(x, f));
  }
  LOCKSTEP_HOST_DEVICE static float gradient(float x, float gradient, const ActivationFunction& f) {
    const float t = std::tanh(ActivationRow<ActivationFunction::Kind::softplus>::value(x, f));
    return gradient * (t + x * (1.0F - t * t) / (1.0F + std::exp(-x)));
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::log_softmax> : ElementwiseRow {
  static constexpr std::string_view keras_name = "log_softmax";
  static constexpr auto derivative = Derivative::none;
};

template <>
struct ActivationRow<ActivationFunction::Kind::celu> : ElementwiseRow {
  static constexpr std::string_view keras_name = "celu";
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) {
    return x > 0.0F ? x : std::expm1(x);
  }
  LOCKSTEP_HOST_DEVICE static float gradient(float y, float gradient, const ActivationFunction& /*f*/) {
    return y > 0.0F ? gradient : gradient * (y + 1.0F);
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::hard_tanh> : ElementwiseRow {
  static constexpr std::string_view keras_name = "hard_tanh";
  static constexpr auto derivative = Derivative::from_input;  // at -1 and 1 it is 1, as on TensorFlow and JAX
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) {
    return x < -1.0F ? -1.0F : (x > 1.0F ? 1.0F : x);
  }
  LOCKSTEP_HOST_DEVICE static float gradient(float x, float gradient, const ActivationFunction& /*f*/) {
    return x >= -1.0F && x <= 1.0F ? gradient : 0.0F;
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::log_sigmoid> : ElementwiseRow {
  static constexpr std::string_view keras_name = "log_sigmoid";
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) {
    return (x < 0.0F ? x : 0.0F) - std::log1p(std::exp(-std::abs(x)));
  }
  LOCKSTEP_HOST_DEVICE static float gradient(float y, float gradient, const ActivationFunction& /*f*/) {
    return gradient * -std::expm1(y);
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::tanh_shrink> : ElementwiseRow {
  static constexpr std::string_view keras_name = "tanh_shrink";
  static constexpr auto derivative = Derivative::from_input;
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) { return x - std::tanh(x); }
  LOCKSTEP_HOST_DEVICE static float gradient(float x, float gradient, const ActivationFunction& /*f*/) {
    const float t = std::tanh(x);
    return gradient * t * t;
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::hard_shrink> : ElementwiseRow {
  static constexpr std::string_view keras_name = "hard_shrink";
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) {
    return std::abs(x) > 0.5F ? x : 0.0F;
  }
  LOCKSTEP_HOST_DEVICE static float gradient(float y, float gradient, const ActivationFunction& /*f*/) {
    return y != 0.0F ? gradient : 0.0F;
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::soft_shrink> : ElementwiseRow {
  static constexpr std::string_view keras_name = "soft_shrink";
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) {
    return x > 0.5F ? x - 0.5F : (x < -0.5F ? x + 0.5F : 0.0F);
  }
  LOCKSTEP_HOST_DEVICE static float gradient(float y, float gradient, const ActivationFunction& /*f*/) {
    return y != 0.0F ? gradient : 0.0F;
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::squareplus> : ElementwiseRow {
  static constexpr std::string_view keras_name = "squareplus";
  static constexpr auto derivative = Derivative::from_input;
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) {
    return 0.5F * (x + std::sqrt(x * x + 4.0F));
  }
  LOCKSTEP_HOST_DEVICE static float gradient(float x, float gradient, const ActivationFunction& /*f*/) {
    return gradient * 0.5F * (1.0F + x / std::sqrt(x * x + 4.0F));
  }
};

template <>
struct ActivationRow<ActivationFunction::Kind::sparse_plus> : ElementwiseRow {
  static constexpr std::string_view keras_name = "sparse_plus";
  static constexpr auto derivative = Derivative::from_input;
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& /*f*/) {
    return x < -1.0F ? 0.0F : (x > 1.0F ? x : 0.25F * (x + 1.0F) * (x + 1.0F));
  }
  LOCKSTEP_HOST_DEVICE static float gradient(float x, float gradient, const ActivationFunction& /*f*/) {
    return x > -1.0F ? (x < 1.0F ? gradient * 0.5F * (x + 1.0F) : gradient) : 0.0F;
  }
};

/// relu with a slope, a threshold and a maximum: the layer ReLU. Its derivative is that of Keras on TensorFlow: 0 at
/// the threshold, 1 at the maximum.
template <>
struct ActivationRow<ActivationFunction::Kind::clipped_relu> : ElementwiseRow {
  static constexpr std::string_view keras_name = "clipped_relu";
  static constexpr auto derivative = Derivative::from_input;
  static constexpr bool has_parameter = true;
  LOCKSTEP_HOST_DEVICE static float value(float x, const ActivationFunction& f) {
    if (!(x > f.threshold)) return f.parameter * (x - f.threshold);
    return x < f.max_value ? x : f.max_value;
  }
  LOCKSTEP_HOST_DEVICE static float gradient(float x, float gradient, const ActivationFunction& f) {
    if (x == f.threshold) return 0.0F;
    if (!(x > f.threshold)) return f.parameter * gradient;
    return x <= f.max_value ? gradient : 0.0F;
  }
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

/// The function that the name of this kind describes.
[[nodiscard]] constexpr ActivationFunction named_activation(ActivationFunction::Kind kind) {
  float parameter = 0;
  visit_activation(kind, [&](auto row) { parameter = decltype(row)::default_parameter; });
  return ActivationFunction(kind, parameter);
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
    if constexpr (decltype(row)::derivative != Derivative::none) value = row.value(x, function);
  });
  return value;
}

/// gradient * f'(x) for an elementwise function, where v is f(x), or x if the derivative is computed from the input;
/// the gradient itself for any other.
LOCKSTEP_HOST_DEVICE inline float activation_gradient(ActivationFunction function, float v, float gradient) {
  float result = gradient;
  visit_activation(function.kind, [&](auto row) {
    if constexpr (decltype(row)::derivative != Derivative::none) {
      result = row.gradient(v, gradient, function);
    }
  });
  return result;
}

/// The functions that a name describes, in the order of their kinds: those without a parameter.
[[nodiscard]] constexpr auto named_activations() {
  constexpr auto of_kind = [](std::size_t i) { return named_activation(static_cast<ActivationFunction::Kind>(i)); };
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
