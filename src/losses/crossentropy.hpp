// Categorical crossentropies: fields and the rule that they share.
#pragma once

#include "losses/loss_traits.hpp"

#include <lockstep/layers/activation.hpp>
#include <lockstep/losses/crossentropy.hpp>

#include <cmath>

namespace lockstep {

/// How outputs that are no logits become probabilities that sum to 1 in Keras on TensorFlow. Only outputs within 1e-7
/// of 0 or beyond 1 - 1e-7 tell the two apart.
enum class Normalization { divide_then_clip, clip_then_divide };

struct CrossentropyRule {
  bool from_logits;
  Normalization normalization;

  template <typename Index, typename Target, typename Gradient>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float operator()(const float* output, Index count, const Target& target,
                                                      const Gradient& gradient) const {
    if (from_logits) return logits(output, count, target, gradient);
    return normalization == Normalization::divide_then_clip ? divided_then_clipped(output, count, target, gradient)
                                                            : clipped_then_divided(output, count, target, gradient);
  }

 private:
  static constexpr float epsilon = 1e-7F;  ///< Keras' epsilon: probabilities are kept this far from 0 and 1

  template <typename Index, typename Target, typename Gradient>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float logits(const float* z, Index count, const Target& target,
                                                         const Gradient& gradient) {
    float largest = z[0];
    for (Index k = 1; k < count; ++k) largest = largest < z[k] ? z[k] : largest;
    float sum = 0;
    for (Index k = 0; k < count; ++k) sum += std::exp(z[k] - largest);
    const float log_sum = std::log(sum) + largest;
    float loss = 0;
    float total = 0;
    for (Index k = 0; k < count; ++k) {
      const float probability = target(k);
      if (probability != 0.0F) loss += probability * (log_sum - z[k]);
      total += probability;
    }
    if (!gradient.is_wanted()) return loss;
    for (Index k = 0; k < count; ++k) gradient(k, std::exp(z[k] - log_sum) * total - target(k));
    return loss;
  }

  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float clip(float p) {
    return p < epsilon ? epsilon : 1.0F - epsilon < p ? 1.0F - epsilon : p;  // NaN stays NaN
  }

  /// With q[k] = p[k] / sum(p): the sum of -y[k] log(clip(q[k])).
  template <typename Index, typename Target, typename Gradient>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float divided_then_clipped(const float* p, Index count,
                                                                       const Target& target, const Gradient& gradient) {
    float sum = 0;
    for (Index k = 0; k < count; ++k) sum += p[k];
    float loss = 0;
    float unclipped = 0;  // the sum of the targets whose outputs are not clipped
    for (Index k = 0; k < count; ++k) {
      const float probability = target(k);
      const float q = p[k] / sum;
      const float clipped = clip(q);
      if (probability != 0.0F) loss -= probability * std::log(clipped);
      if (clipped == q) unclipped += probability;
    }
    if (!gradient.is_wanted()) return loss;
    for (Index k = 0; k < count; ++k) {
      const float q = p[k] / sum;
      gradient(k, ((clip(q) == q ? -target(k) / q : 0.0F) + unclipped) / sum);
    }
    return loss;
  }

  /// With c[k] = clip(p[k]): the sum of -y[k] log(c[k] / sum(c)).
  template <typename Index, typename Target, typename Gradient>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float clipped_then_divided(const float* p, Index count,
                                                                       const Target& target, const Gradient& gradient) {
    float sum = 0;
    for (Index k = 0; k < count; ++k) sum += clip(p[k]);
    const float log_sum = std::log(sum);
    float loss = 0;
    float total = 0;
    for (Index k = 0; k < count; ++k) {
      const float probability = target(k);
      if (probability != 0.0F) loss += probability * (log_sum - std::log(clip(p[k])));
      total += probability;
    }
    if (!gradient.is_wanted()) return loss;
    for (Index k = 0; k < count; ++k) {
      const float clipped = clip(p[k]);
      gradient(k, clipped == p[k] ? total / sum - target(k) / clipped : 0.0F);
    }
    return loss;
  }
};

/// The traits that the crossentropies share.
struct CrossentropyTraits {
  static constexpr ActivationFunction probabilities_of = ActivationFunction::softmax;
  static constexpr std::array<std::string_view, 0> aliases{};
  static constexpr bool needs_class_vector = true;
};

template <>
struct LossTraits<SparseCategoricalCrossentropy> : CrossentropyTraits {
  static constexpr std::string_view class_name = "SparseCategoricalCrossentropy";
  static constexpr std::string_view function_name = "sparse_categorical_crossentropy";
  static constexpr bool takes_classes = true;

  static void fields(auto& visit, auto& loss) {
    visit.optional("from_logits", loss.from_logits);
    visit.expected("axis", -1);
  }

  static CrossentropyRule rule(const SparseCategoricalCrossentropy& loss) {
    return {.from_logits = loss.from_logits, .normalization = Normalization::clip_then_divide};
  }
};

template <>
struct LossTraits<CategoricalCrossentropy> : CrossentropyTraits {
  static constexpr std::string_view class_name = "CategoricalCrossentropy";
  static constexpr std::string_view function_name = "categorical_crossentropy";
  static constexpr bool takes_classes = false;

  static void fields(auto& visit, auto& loss) {
    visit.optional("from_logits", loss.from_logits);
    visit.expected("axis", -1);
    visit.expected("label_smoothing", 0);
  }

  static CrossentropyRule rule(const CategoricalCrossentropy& loss) {
    return {.from_logits = loss.from_logits, .normalization = Normalization::divide_then_clip};
  }
};

}  // namespace lockstep
