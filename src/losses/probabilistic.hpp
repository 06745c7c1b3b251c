// Losses for distributions and counts: names and rules.
#pragma once

#include "core/fields.hpp"
#include "losses/loss_traits.hpp"

#include <lockstep/losses/probabilistic.hpp>

#include <cmath>

namespace lockstep {

struct DivergenceRule {
  template <typename Index, typename Target, typename Gradient>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float operator()(const float* output, Index count, const Target& target,
                                                      const Gradient& gradient) const {
    float loss = 0;
    for (Index k = 0; k < count; ++k) {
      const float y = clip_probability(target(k), 1.0F);
      const float p = clip_probability(output[k], 1.0F);
      loss += y * std::log(y / p);
      if (gradient.is_wanted()) gradient(k, p == output[k] ? -y / p : 0.0F);
    }
    return loss;
  }
};

struct PoissonTerm {
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float value(float p, float y) { return p - y * std::log(p + loss_epsilon); }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static float derivative(float p, float y) { return 1.0F - y / (p + loss_epsilon); }
};

template <>
struct LossTraits<KLDivergence> : DenseLossTraits {
  static constexpr std::string_view class_name = "KLDivergence";
  static constexpr std::string_view function_name = "kl_divergence";
  static constexpr TargetRange targets = TargetRange::any;
  static constexpr std::array<std::string_view, 3> aliases{"kld", "KLD", "kullback_leibler_divergence"};
  static constexpr bool is_per_vector = true;

  static DivergenceRule rule(const KLDivergence& /*loss*/) { return {}; }
};

template <>
struct LossTraits<Poisson> : MeanLossTraits<PoissonTerm> {
  static constexpr std::string_view class_name = "Poisson";
  static constexpr std::string_view function_name = "poisson";
  static constexpr TargetRange targets = TargetRange::any;
};

}  // namespace lockstep
