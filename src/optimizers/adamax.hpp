// Adamax: fields, slots and update rule.
#pragma once

#include "optimizers/optimizer_traits.hpp"

#include <lockstep/optimizers/adamax.hpp>

#include <cmath>

namespace lockstep {

struct AdamaxUpdate {
  static constexpr int num_slots = 2;
  float rate;
  float one_minus_beta_1;
  float beta_2;
  float correction;  ///< 1 - beta_1^t
  float epsilon;

  LOCKSTEP_HOST_DEVICE void operator()(float& w, float g, float& exp_avg, float& largest) const {
    exp_avg += (g - exp_avg) * one_minus_beta_1;
    const float decayed = beta_2 * largest;
    const float size = std::abs(g);
    largest = size < decayed ? decayed : size;  // NaN stays NaN
    w -= rate * exp_avg / (correction * (largest + epsilon));
  }
};

template <>
struct OptimizerTraits<Adamax> {
  static constexpr std::string_view class_name = "Adamax";
  static constexpr std::string_view object_name = "adamax";

  static void fields(auto& visit, auto& adamax) {
    visit.optional("beta_1", adamax.beta_1, below_one);
    visit.optional("beta_2", adamax.beta_2, zero_to_one);
    visit.optional("epsilon", adamax.epsilon, positive);
  }

  static Slots slots(const Adamax& /*adamax*/) { return {{"momentum"}, {.name = "norm", .is_interleaved = true}}; }

  static AdamaxUpdate update(const Adamax& adamax, const StepTime& step) {
    return {.rate = static_cast<float>(step.learning_rate),
            .one_minus_beta_1 = static_cast<float>(1.0 - adamax.beta_1),
            .beta_2 = static_cast<float>(adamax.beta_2),
            .correction = static_cast<float>(1.0 - std::pow(adamax.beta_1, step.t)),
            .epsilon = static_cast<float>(adamax.epsilon)};
  }
};

}  // namespace lockstep
