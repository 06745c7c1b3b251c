// Activation functions, under Keras' names, and the layers that apply one.
#pragma once

#include <lockstep/layers/callable.hpp>
#include <lockstep/layers/constraint.hpp>
#include <lockstep/layers/initializer.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// A function that is applied to a layer's output. layers/activation_functions.hpp has the formulas.
struct ActivationFunction {
  enum class Kind : std::uint8_t {
    linear,
    relu,
    sigmoid,
    tanh,
    softmax,
    relu6,
    leaky_relu,
    elu,
    selu,
    gelu,
    silu,
    softplus,
    softsign,
    hard_sigmoid,
    hard_silu,
    exponential,
    mish,
    log_softmax,
    celu,
    hard_tanh,
    log_sigmoid,
    tanh_shrink,
    hard_shrink,
    soft_shrink,
    squareplus,
    sparse_plus,
    clipped_relu,
    count_
  };
  static constexpr std::size_t num_kinds = static_cast<std::size_t>(Kind::count_);

  constexpr ActivationFunction() noexcept = default;
  constexpr explicit ActivationFunction(Kind kind_, float parameter_ = 0) noexcept
      : kind(kind_), parameter(parameter_) {}
  /// From Keras' name, such as "relu". Throws UsageError for an unknown name.
  ActivationFunction(const char* name);  // NOLINT(google-explicit-constructor): as Keras reads "relu"

  Kind kind = Kind::linear;
  float parameter = 0;  ///< for kinds that have one, such as a slope; else 0
  float threshold = 0;  ///< of clipped_relu, which is slope (x - threshold) up to it
  float max_value = std::numeric_limits<float>::infinity();  ///< of clipped_relu

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
inline constexpr ActivationFunction relu6{ActivationFunction::Kind::relu6};
inline constexpr ActivationFunction leaky_relu{ActivationFunction::Kind::leaky_relu, 0.2F};  ///< with Keras' slope
inline constexpr ActivationFunction elu{ActivationFunction::Kind::elu, 1.0F};
inline constexpr ActivationFunction selu{ActivationFunction::Kind::selu};
inline constexpr ActivationFunction gelu{ActivationFunction::Kind::gelu};  ///< exact, not the tanh approximation
inline constexpr ActivationFunction silu{ActivationFunction::Kind::silu};
inline constexpr ActivationFunction softplus{ActivationFunction::Kind::softplus};
inline constexpr ActivationFunction softsign{ActivationFunction::Kind::softsign};
inline constexpr ActivationFunction hard_sigmoid{ActivationFunction::Kind::hard_sigmoid};
inline constexpr ActivationFunction hard_silu{ActivationFunction::Kind::hard_silu};
inline constexpr ActivationFunction exponential{ActivationFunction::Kind::exponential};
inline constexpr ActivationFunction mish{ActivationFunction::Kind::mish};
inline constexpr ActivationFunction log_softmax{ActivationFunction::Kind::log_softmax};
inline constexpr ActivationFunction celu{ActivationFunction::Kind::celu};
inline constexpr ActivationFunction hard_tanh{ActivationFunction::Kind::hard_tanh};
inline constexpr ActivationFunction log_sigmoid{ActivationFunction::Kind::log_sigmoid};
inline constexpr ActivationFunction tanh_shrink{ActivationFunction::Kind::tanh_shrink};
inline constexpr ActivationFunction hard_shrink{ActivationFunction::Kind::hard_shrink};
inline constexpr ActivationFunction soft_shrink{ActivationFunction::Kind::soft_shrink};
inline constexpr ActivationFunction squareplus{ActivationFunction::Kind::squareplus};
inline constexpr ActivationFunction sparse_plus{ActivationFunction::Kind::sparse_plus};
}  // namespace activations

using activations::linear;
using activations::relu;
using activations::sigmoid;
using activations::softmax;

/// The name in Keras' files: "relu".
[[nodiscard]] std::string_view keras_name(ActivationFunction function) noexcept;

/// Another name for it in files of Keras: "swish" for silu. Empty if there is none.
[[nodiscard]] std::string_view keras_alias(ActivationFunction function) noexcept;

/// Applies a function to its input, of any shape. softmax runs over the last axis.
struct Activation : CallableLayer<Activation> {
  explicit Activation(ActivationFunction function_, std::string name_ = {})
      : function(function_), name(std::move(name_)) {}
  ActivationFunction function;
  std::string name;
};

/// Its input, of any shape.
struct Identity : CallableLayer<Identity> {
  explicit Identity(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

struct ReLUOptions {
  std::optional<double> max_value = {};
  double negative_slope = 0;
  double threshold = 0;
  std::string name = {};
};

/// x above the threshold, but at most max_value; else negative_slope (x - threshold).
struct ReLU : ReLUOptions, CallableLayer<ReLU> {
  explicit ReLU(ReLUOptions options = {}) : ReLUOptions(std::move(options)) {}
};

/// x, or negative_slope x where x is negative.
struct LeakyReLU : CallableLayer<LeakyReLU> {
  explicit LeakyReLU(double negative_slope_ = 0.3, std::string name_ = {})
      : negative_slope(negative_slope_), name(std::move(name_)) {}
  double negative_slope;
  std::string name;
};

/// x, or alpha (exp(x) - 1) where x is negative.
struct ELU : CallableLayer<ELU> {
  explicit ELU(double alpha_ = 1, std::string name_ = {}) : alpha(alpha_), name(std::move(name_)) {}
  double alpha;
  std::string name;
};

struct PReLUOptions {
  Initializer alpha_initializer = Initializer::zeros;
  Regularizer alpha_regularizer = {};
  Constraint alpha_constraint = {};
  std::vector<int> shared_axes = {};  ///< axes, counted from 1, along which all elements have one slope
  std::string name = {};
};

/// x, or alpha x where x is negative, with a trained alpha for each element of an example.
struct PReLU : PReLUOptions, CallableLayer<PReLU> {
  explicit PReLU(PReLUOptions options = {}) : PReLUOptions(std::move(options)) {}
};

/// Softmax over the last axis, like Activation(softmax).
struct Softmax : CallableLayer<Softmax> {
  explicit Softmax(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

}  // namespace lockstep
