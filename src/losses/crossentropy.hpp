// Categorical crossentropies: fields and the rule that they share.
#pragma once

#include "losses/loss_traits.hpp"

#include <lockstep/layers/activation.hpp>
#include <lockstep/losses/crossentropy.hpp>

#include <cmath>

namespace lockstep {

struct CrossentropyRule {
  bool from_logits;

  template <typename Index, typename Target, typename Gradient>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float operator()(const float* output, Index count, const Target& target,
                                                      const Gradient& gradient) const {
    return from_logits ? logits(output, count, target, gradient) : probabilities(output, count, target, gradient);
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

  template <typename Index, typename Target, typename Gradient>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float probabilities(const float* p, Index count, const Target& target,
                                                                const Gradient& gradient) {
    float loss = 0;
    for (Index k = 0; k < count; ++k) {
      const float probability = target(k);
      const float clipped = p[k] < epsilon ? epsilon : 1.0F - epsilon < p[k] ? 1.0F - epsilon : p[k];  // NaN stays NaN
      if (probability != 0.0F) loss -= probability * std::log(clipped);
      if (gradient.is_wanted()) gradient(k, clipped == p[k] ? -probability / clipped : 0.0F);
    }
    return loss;
  }
};

/// The traits that the crossentropies share.
struct CrossentropyTraits {
  static constexpr ActivationFunction probabilities_of = ActivationFunction::softmax;
  static constexpr std::array<std::string_view, 0> aliases{};
  static constexpr bool needs_class_vector = true;

  template <typename Loss>
  static CrossentropyRule rule(const Loss& loss) {
    return CrossentropyRule{.from_logits = loss.from_logits};
  }
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
};

}  // namespace lockstep
