// The variables of a layer and their initial values.
#pragma once

#include <lockstep/core/shape.hpp>
#include <lockstep/layers/constraint.hpp>
#include <lockstep/layers/regularizer.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

enum class Distribution : std::uint8_t { constant, uniform, normal, truncated_normal };

/// The fan by which Keras' VarianceScaling divides its scale: the number of inputs of a unit, of outputs, or their
/// mean.
enum class FanMode : std::uint8_t { fan_in, fan_out, fan_average };

/// Keras' initializers: Initializer::he_normal, or "he_normal". layers/initializers.hpp has the formulas.
struct Initializer {
  enum class Kind : std::uint8_t {
    glorot_uniform,
    glorot_normal,
    he_uniform,
    he_normal,
    lecun_uniform,
    lecun_normal,
    zeros,
    ones,
    constant,
    random_uniform,
    random_normal,
    truncated_normal,
    variance_scaling,
    orthogonal,
    identity
  };
  static const Initializer glorot_uniform, glorot_normal, he_uniform, he_normal, lecun_uniform, lecun_normal, zeros,
      ones, constant, random_uniform, random_normal, truncated_normal, variance_scaling, orthogonal, identity;

  constexpr explicit Initializer(Kind kind_, double first_ = 0, double second_ = 0, FanMode mode_ = FanMode::fan_in,
                                 Distribution distribution_ = Distribution::truncated_normal) noexcept
      : kind(kind_), first(first_), second(second_), mode(mode_), distribution(distribution_) {}
  Initializer(const char* name);  // NOLINT(google-explicit-constructor): as Keras reads "he_normal"

  Kind kind;
  double first;   ///< constant: the value; random_uniform: the minimum; normal ones: the mean; variance_scaling: scale;
                  ///< orthogonal and identity: gain
  double second;  ///< random_uniform: the maximum; normal ones: the standard deviation
  FanMode mode;   ///< of variance_scaling
  Distribution distribution;  ///< of variance_scaling
  friend constexpr bool operator==(const Initializer&, const Initializer&) = default;
};

inline constexpr Initializer Initializer::glorot_uniform{Kind::glorot_uniform};
inline constexpr Initializer Initializer::glorot_normal{Kind::glorot_normal};
inline constexpr Initializer Initializer::he_uniform{Kind::he_uniform};
inline constexpr Initializer Initializer::he_normal{Kind::he_normal};
inline constexpr Initializer Initializer::lecun_uniform{Kind::lecun_uniform};
inline constexpr Initializer Initializer::lecun_normal{Kind::lecun_normal};
inline constexpr Initializer Initializer::zeros{Kind::zeros};
inline constexpr Initializer Initializer::ones{Kind::ones};
inline constexpr Initializer Initializer::constant{Kind::constant};
inline constexpr Initializer Initializer::random_uniform{Kind::random_uniform, -0.05, 0.05};
inline constexpr Initializer Initializer::random_normal{Kind::random_normal, 0, 0.05};
inline constexpr Initializer Initializer::truncated_normal{Kind::truncated_normal, 0, 0.05};
inline constexpr Initializer Initializer::variance_scaling{Kind::variance_scaling, 1};
inline constexpr Initializer Initializer::orthogonal{Kind::orthogonal, 1};
inline constexpr Initializer Initializer::identity{Kind::identity, 1};

/// One variable of a layer, in Keras' order: trainable ones first (kernel, bias; gamma, beta), then the others
/// (moving_mean, moving_variance).
struct ParameterInfo {
  std::string name;  ///< "kernel"
  Shape shape;       ///< Keras' layout
  Initializer initializer;
  bool trainable = true;     ///< false in layers that are not trainable
  double momentum = 0;       ///< of a moving average, which is never trainable
  bool is_constant = false;  ///< not trainable, and no moving average either
  Regularizer regularizer = {};
  Constraint constraint = {};
};

/// Computes the initial value of parameter number `index` (counted over the whole model), which depends only on
/// (seed, index). Resizes `values` to shape.elements() elements in Keras' layout. Formulas: Keras' random_initializers
/// (X. Glorot and Y. Bengio, 2010; K. He et al., 2015; A. Saxe et al., 2014). Throws UsageError unless the shape has
/// the axes that the initializer needs: two for identity, two or more for orthogonal.
void initialize(const ParameterInfo& parameter, std::uint64_t seed, std::uint64_t index, std::vector<float>& values);

}  // namespace lockstep
