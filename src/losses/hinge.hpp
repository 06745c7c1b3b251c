// Maximum-margin losses: names and rules.
#pragma once

#include "core/fields.hpp"
#include "losses/loss_traits.hpp"

#include <lockstep/losses/hinge.hpp>

namespace lockstep {

/// The target as a sign: 0 stands for -1.
[[nodiscard]] LOCKSTEP_HOST_DEVICE inline float hinge_sign(float y) { return y == 0.0F ? -1.0F : y; }

struct HingeTerm {
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float value(float p, float y) {
    const float missing = 1.0F - hinge_sign(y) * p;
    return missing < 0.0F ? 0.0F : missing;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float derivative(float p, float y) {
    return value(p, y) == 0.0F ? 0.0F : -hinge_sign(y);
  }
};

struct SquaredHingeTerm {
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float value(float p, float y) {
    const float missing = HingeTerm::value(p, y);
    return missing * missing;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float derivative(float p, float y) {
    return -2.0F * HingeTerm::value(p, y) * hinge_sign(y);
  }
};

/// The gradient of the largest wrong output is shared among equals, as in Keras' backends.
struct CategoricalHingeRule {
  template <typename Index, typename Target, typename Gradient>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float operator()(const float* output, Index count, const Target& target,
                                                      const Gradient& gradient) const {
    const auto of_rival = [&](Index k) { return (1.0F - target(k)) * output[k]; };
    float of_class = 0;
    float largest = of_rival(0);
    float equals = 0;
    for (Index k = 0; k < count; ++k) {
      of_class += target(k) * output[k];
      if (largest < of_rival(k)) {
        largest = of_rival(k);
        equals = 0;
      }
      if (largest == of_rival(k)) ++equals;
    }
    const float missing = largest - of_class + 1.0F;
    const bool is_missing = !(missing <= 0.0F);  // NaN stays NaN
    if (gradient.is_wanted()) {
      for (Index k = 0; k < count; ++k) {
        const float share = largest == of_rival(k) ? (1.0F - target(k)) / equals : 0.0F;
        gradient(k, is_missing ? share - target(k) : 0.0F);
      }
    }
    return is_missing ? missing : 0.0F;
  }
};

template <>
struct LossTraits<Hinge> : MeanLossTraits<HingeTerm> {
  static constexpr std::string_view class_name = "Hinge";
  static constexpr std::string_view function_name = "hinge";
  static constexpr TargetRange targets = TargetRange::signs;
};

template <>
struct LossTraits<SquaredHinge> : MeanLossTraits<SquaredHingeTerm> {
  static constexpr std::string_view class_name = "SquaredHinge";
  static constexpr std::string_view function_name = "squared_hinge";
  static constexpr TargetRange targets = TargetRange::signs;
};

template <>
struct LossTraits<CategoricalHinge> : DenseLossTraits {
  static constexpr std::string_view class_name = "CategoricalHinge";
  static constexpr std::string_view function_name = "categorical_hinge";
  static constexpr TargetRange targets = TargetRange::any;
  static constexpr bool takes_one_hot = true;
  static constexpr bool is_per_vector = true;

  static CategoricalHingeRule rule(const CategoricalHinge& /*loss*/) { return {}; }
};

}  // namespace lockstep
