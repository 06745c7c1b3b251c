// Binary crossentropies: fields and rules.
#pragma once

#include "core/fields.hpp"
#include "losses/loss_traits.hpp"

#include <lockstep/layers/activation.hpp>
#include <lockstep/losses/binary_crossentropy.hpp>

#include <array>
#include <cmath>

namespace lockstep {

[[nodiscard]] LOCKSTEP_HOST_DEVICE inline float logistic(float z) { return 1.0F / (1.0F + std::exp(-z)); }

struct BinaryCrossentropyTerm {
  bool from_logits;
  float smoothing;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE float value(float output, float target) const {
    const float y = smoothed(target);
    if (from_logits) {  // max(z, 0) - z y + log(1 + exp(-|z|)), which does not overflow
      return (output < 0.0F ? 0.0F : output) - output * y + std::log1p(std::exp(-std::abs(output)));
    }
    const float p = clip_probability(output);
    return -(y * std::log(p) + (1.0F - y) * std::log(1.0F - p));
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float derivative(float output, float target) const {
    const float y = smoothed(target);
    if (from_logits) return logistic(output) - y;
    const float p = clip_probability(output);
    return p == output ? (1.0F - y) / (1.0F - p) - y / p : 0.0F;
  }

 private:
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float smoothed(float y) const { return y * (1.0F - smoothing) + 0.5F * smoothing; }
};

struct BinaryFocalTerm {
  bool from_logits;
  bool balanced;
  float alpha;
  float gamma;
  float smoothing;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE float value(float output, float target) const {
    const FocalTerms terms = terms_of(output, target);
    return terms.weight * terms.focus * terms.crossentropy;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float derivative(float output, float target) const {
    const FocalTerms terms = terms_of(output, target);
    const float by_p = terms.weight * (terms.focus_by_p * terms.crossentropy + terms.focus * terms.crossentropy_by_p);
    return from_logits ? by_p * terms.p * (1.0F - terms.p) : by_p;
  }

 private:
  struct FocalTerms {
    float p;
    float weight;
    float focus;
    float focus_by_p;
    float crossentropy;
    float crossentropy_by_p;
  };

  [[nodiscard]] LOCKSTEP_HOST_DEVICE FocalTerms terms_of(float output, float target) const {
    const float y = target * (1.0F - smoothing) + 0.5F * smoothing;
    const float p = from_logits ? logistic(output) : output;
    const BinaryCrossentropyTerm crossentropy{false, 0.0F};
    const float miss = 1.0F - (y * p + (1.0F - y) * (1.0F - p));
    const float slope = gamma == 0.0F ? 0.0F : gamma * std::pow(miss, gamma - 1.0F);
    return {.p = p,
            .weight = balanced ? y * alpha + (1.0F - y) * (1.0F - alpha) : 1.0F,
            .focus = std::pow(miss, gamma),
            .focus_by_p = slope * (1.0F - 2.0F * y),
            .crossentropy = crossentropy.value(p, y),
            .crossentropy_by_p = crossentropy.derivative(p, y)};
  }
};

/// The traits that the binary crossentropies share.
struct BinaryCrossentropyTraits : DenseLossTraits {
  static constexpr ActivationFunction probabilities_of = ActivationFunction::sigmoid;

  static void fields(auto& visit, auto& loss) {
    visit.optional("from_logits", loss.from_logits);
    visit.optional("label_smoothing", loss.label_smoothing, zero_to_one);
    visit.expected("axis", -1);
  }
};

template <>
struct LossTraits<BinaryCrossentropy> : BinaryCrossentropyTraits {
  static constexpr std::string_view class_name = "BinaryCrossentropy";
  static constexpr std::string_view function_name = "binary_crossentropy";
  static constexpr TargetRange targets = TargetRange::zero_to_one;
  static constexpr std::array<std::string_view, 2> aliases{"bce", "BCE"};

  static MeanOverOutputs<BinaryCrossentropyTerm> rule(const BinaryCrossentropy& loss) {
    return {{loss.from_logits, static_cast<float>(loss.label_smoothing)}};
  }
};

template <>
struct LossTraits<BinaryFocalCrossentropy> : BinaryCrossentropyTraits {
  static constexpr std::string_view class_name = "BinaryFocalCrossentropy";
  static constexpr std::string_view function_name = "binary_focal_crossentropy";
  static constexpr TargetRange targets = TargetRange::zero_to_one;

  static void fields(auto& visit, auto& loss) {
    visit.optional("apply_class_balancing", loss.apply_class_balancing);
    visit.optional("alpha", loss.alpha, zero_to_one);
    visit.optional("gamma", loss.gamma, not_negative);
    BinaryCrossentropyTraits::fields(visit, loss);
  }

  static MeanOverOutputs<BinaryFocalTerm> rule(const BinaryFocalCrossentropy& loss) {
    return {{loss.from_logits, loss.apply_class_balancing, static_cast<float>(loss.alpha),
             static_cast<float>(loss.gamma), static_cast<float>(loss.label_smoothing)}};
  }
};

}  // namespace lockstep
