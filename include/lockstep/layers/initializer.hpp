// The variables of a layer and their initial values.
#pragma once

#include <lockstep/core/shape.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Keras' initializers: Initializer::he_normal, or "he_normal". layers/initializers.hpp has the formulas.
struct Initializer {
  enum class Kind : std::uint8_t { glorot_uniform, glorot_normal, he_uniform, he_normal, zeros, ones };
  static const Initializer glorot_uniform, glorot_normal, he_uniform, he_normal, zeros, ones;

  constexpr explicit Initializer(Kind kind_) noexcept : kind(kind_) {}
  Initializer(const char* name);  // NOLINT(google-explicit-constructor): as Keras reads "he_normal"
  Kind kind;
  friend constexpr bool operator==(const Initializer&, const Initializer&) = default;
};

inline constexpr Initializer Initializer::glorot_uniform{Kind::glorot_uniform};
inline constexpr Initializer Initializer::glorot_normal{Kind::glorot_normal};
inline constexpr Initializer Initializer::he_uniform{Kind::he_uniform};
inline constexpr Initializer Initializer::he_normal{Kind::he_normal};
inline constexpr Initializer Initializer::zeros{Kind::zeros};
inline constexpr Initializer Initializer::ones{Kind::ones};

/// One variable of a layer, in Keras' order: trainable ones first (kernel, bias; gamma, beta), then the others
/// (moving_mean, moving_variance).
struct ParameterInfo {
  std::string name;  ///< "kernel"
  Shape shape;       ///< Keras' layout
  Initializer initializer;
  bool trainable = true;  ///< false in layers that are not trainable
  double momentum = 0;    ///< of a moving average, which is never trainable
};

/// Computes the initial value of parameter number `index` (counted over the whole model), which depends only on
/// (seed, index). Resizes `values` to shape.elements() elements in Keras' layout. Formulas: Keras' random_initializers
/// (X. Glorot and Y. Bengio, 2010; K. He et al., 2015).
void initialize(const ParameterInfo& parameter, std::uint64_t seed, std::uint64_t index, std::vector<float>& values);

}  // namespace lockstep
