// Categorical crossentropies: fields and rules.
#pragma once

#include "core/fields.hpp"
#include "losses/loss_traits.hpp"

#include <lockstep/layers/activation.hpp>
#include <lockstep/losses/crossentropy.hpp>

#include <cmath>

namespace lockstep {

/// How outputs that are no logits become probabilities that sum to 1. They differ where an output, or its share in the
/// sum, is within 1e-7 of 0 or beyond 1 - 1e-7. Keras on TensorFlow clips first if targets are class indices;
/// otherwise, and always on JAX and PyTorch, Keras divides first.
enum class OutputScaling { divide_then_clip, clip_then_divide };

struct CrossentropyRule {
  bool from_logits = false;
  OutputScaling scaling = OutputScaling::divide_then_clip;
  float label_smoothing = 0;

  template <typename Index, typename Target, typename Gradient>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float operator()(const float* output, Index count, const Target& target,
                                                      const Gradient& gradient) const {
    if (label_smoothing == 0.0F) return compute(output, count, target, gradient);
    const SmoothedTarget<Target> smoothed{target, label_smoothing, 1.0F / static_cast<float>(count)};
    return compute(output, count, smoothed, gradient);
  }

 private:
  template <typename Index, typename Target, typename Gradient>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float compute(const float* output, Index count, const Target& target,
                                                   const Gradient& gradient) const {
    if (from_logits) return logits(output, count, target, gradient);
    return scaling == OutputScaling::divide_then_clip ? divided_then_clipped(output, count, target, gradient)
                                                      : clipped_then_divided(output, count, target, gradient);
  }

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
      const float clipped = clip_probability(q);
      if (probability != 0.0F) loss -= probability * std::log(clipped);
      if (clipped == q) unclipped += probability;
    }
    if (!gradient.is_wanted()) return loss;
    for (Index k = 0; k < count; ++k) {
      const float q = p[k] / sum;
      gradient(k, ((clip_probability(q) == q ? -target(k) / q : 0.0F) + unclipped) / sum);
    }
    return loss;
  }

  /// With c[k] = clip(p[k]): the sum of -y[k] log(c[k] / sum(c)).
  template <typename Index, typename Target, typename Gradient>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float clipped_then_divided(const float* p, Index count,
                                                                       const Target& target, const Gradient& gradient) {
    float sum = 0;
    for (Index k = 0; k < count; ++k) sum += clip_probability(p[k]);
    const float log_sum = std::log(sum);
    float loss = 0;
    float total = 0;
    for (Index k = 0; k < count; ++k) {
      const float probability = target(k);
      if (probability != 0.0F) loss += probability * (log_sum - std::log(clip_probability(p[k])));
      total += probability;
    }
    if (!gradient.is_wanted()) return loss;
    for (Index k = 0; k < count; ++k) {
      const float clipped = clip_probability(p[k]);
      gradient(k, clipped == p[k] ? total / sum - target(k) / clipped : 0.0F);
    }
    return loss;
  }
};

struct CategoricalFocalRule {
  float alpha;
  float gamma;
  bool from_logits;
  float label_smoothing;

  template <typename Index, typename Target, typename Gradient>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float operator()(const float* output, Index count, const Target& target,
                                                      const Gradient& gradient) const {
    const SmoothedTarget<Target> y{target, label_smoothing, 1.0F / static_cast<float>(count)};
    float largest = output[0];
    for (Index k = 1; k < count; ++k) largest = largest < output[k] ? output[k] : largest;
    const auto unscaled = [&](Index k) { return from_logits ? std::exp(output[k] - largest) : output[k]; };
    float sum = 0;
    for (Index k = 0; k < count; ++k) sum += unscaled(k);
    float loss = 0;
    float projected = 0;  // the derivative along the output, which does not change the normalized probabilities
    for (Index k = 0; k < count; ++k) {
      const float p = unscaled(k) / sum;
      const float clipped = clip_probability(p);
      loss -= alpha * std::pow(1.0F - clipped, gamma) * y(k) * std::log(clipped);
      if (gradient.is_wanted()) projected += derivative(p, y(k)) * p;
    }
    if (!gradient.is_wanted()) return loss;
    for (Index k = 0; k < count; ++k) {
      const float p = unscaled(k) / sum;
      const float by_normalized = derivative(p, y(k)) - projected;
      gradient(k, from_logits ? by_normalized * p : by_normalized / sum);
    }
    return loss;
  }

 private:
  /// Of one class's loss by its normalized probability.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float derivative(float p, float y) const {
    const float clipped = clip_probability(p);
    if (clipped != p) return 0.0F;
    const float slope = gamma == 0.0F ? 0.0F : gamma * std::pow(1.0F - p, gamma - 1.0F);
    return alpha * y * (slope * std::log(p) - std::pow(1.0F - p, gamma) / p);
  }
};

/// The traits that the crossentropies share.
struct CrossentropyTraits {
  static constexpr ActivationFunction probabilities_of = ActivationFunction::softmax;
  static constexpr std::array<std::string_view, 0> aliases{};
  static constexpr bool is_per_vector = true;
};

template <>
struct LossTraits<SparseCategoricalCrossentropy> : CrossentropyTraits {
  static constexpr std::string_view class_name = "SparseCategoricalCrossentropy";
  static constexpr std::string_view function_name = "sparse_categorical_crossentropy";
  static constexpr TargetRange targets = TargetRange::any;
  static constexpr bool takes_classes = true;
  static constexpr bool takes_one_hot = false;

  static void fields(auto& visit, auto& loss) {
    visit.optional("from_logits", loss.from_logits);
    visit.expected("axis", -1);
  }

  static CrossentropyRule rule(const SparseCategoricalCrossentropy& loss) {
    return {.from_logits = loss.from_logits,
            .scaling = loss.clips_probabilities ? OutputScaling::divide_then_clip : OutputScaling::clip_then_divide};
  }
};

template <>
struct LossTraits<CategoricalCrossentropy> : CrossentropyTraits {
  static constexpr std::string_view class_name = "CategoricalCrossentropy";
  static constexpr std::string_view function_name = "categorical_crossentropy";
  static constexpr TargetRange targets = TargetRange::any;
  static constexpr bool takes_classes = false;
  static constexpr bool takes_one_hot = true;

  static void fields(auto& visit, auto& loss) {
    visit.optional("from_logits", loss.from_logits);
    visit.optional("label_smoothing", loss.label_smoothing, zero_to_one);
    visit.expected("axis", -1);
  }

  static CrossentropyRule rule(const CategoricalCrossentropy& loss) {
    return {.from_logits = loss.from_logits,
            .scaling = OutputScaling::divide_then_clip,
            .label_smoothing = static_cast<float>(loss.label_smoothing)};
  }
};

template <>
struct LossTraits<CategoricalFocalCrossentropy> : CrossentropyTraits {
  static constexpr std::string_view class_name = "CategoricalFocalCrossentropy";
  static constexpr std::string_view function_name = "categorical_focal_crossentropy";
  static constexpr TargetRange targets = TargetRange::any;
  static constexpr bool takes_classes = false;
  static constexpr bool takes_one_hot = true;

  static void fields(auto& visit, auto& loss) {
    visit.optional("alpha", loss.alpha, not_negative);
    visit.optional("gamma", loss.gamma, not_negative);
    visit.optional("from_logits", loss.from_logits);
    visit.optional("label_smoothing", loss.label_smoothing, zero_to_one);
    visit.expected("axis", -1);
  }

  static CategoricalFocalRule rule(const CategoricalFocalCrossentropy& loss) {
    return {.alpha = static_cast<float>(loss.alpha),
            .gamma = static_cast<float>(loss.gamma),
            .from_logits = loss.from_logits,
            .label_smoothing = static_cast<float>(loss.label_smoothing)};
  }
};

}  // namespace lockstep
