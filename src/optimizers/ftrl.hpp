// Ftrl: fields, slots and update rule.
#pragma once

#include "optimizers/optimizer_traits.hpp"

#include <lockstep/optimizers/ftrl.hpp>

#include <cmath>

namespace lockstep {

struct FtrlUpdate {
  static constexpr int num_slots = 2;
  float rate;
  float power;
  float l1;
  float two_l2;  ///< twice the strength, the part of beta included
  float two_shrinkage;

  LOCKSTEP_HOST_DEVICE void operator()(float& w, float g, float& sum_sq, float& linear) const {
    const float sum_before = raised(sum_sq);
    sum_sq += g * g;
    const float sum_after = raised(sum_sq);
    linear += g + two_shrinkage * w - (sum_after - sum_before) / rate * w;
    const float clipped = linear < -l1 ? -l1 : l1 < linear ? l1 : linear;
    // Weights that have had no gradient have no curvature either: so has the padding of blocked layouts.
    w = clipped == linear ? 0.0F : (clipped - linear) / (sum_after / rate + two_l2);
  }

 private:
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float raised(float x) const {
    return power == 0.5F ? std::sqrt(x) : std::pow(x, power);
  }
};

template <>
struct OptimizerTraits<Ftrl> {
  static constexpr std::string_view class_name = "Ftrl";
  static constexpr std::string_view object_name = "ftrl";

  static void fields(auto& visit, auto& ftrl) {
    visit.optional("learning_rate_power", ftrl.learning_rate_power, Interval{.max = 0});
    visit.optional("initial_accumulator_value", ftrl.initial_accumulator_value, not_negative);
    visit.optional("l1_regularization_strength", ftrl.l1_regularization_strength, not_negative);
    visit.optional("l2_regularization_strength", ftrl.l2_regularization_strength, not_negative);
    visit.optional("l2_shrinkage_regularization_strength", ftrl.l2_shrinkage_regularization_strength, not_negative);
    visit.optional("beta", ftrl.beta, any_number);
  }

  static Slots slots(const Ftrl& ftrl) {
    return {{"accumulator", static_cast<float>(ftrl.initial_accumulator_value)},
            {.name = "linear", .is_interleaved = true}};
  }

  static FtrlUpdate update(const Ftrl& ftrl, const StepTime& step) {
    return {.rate = static_cast<float>(step.learning_rate),
            .power = static_cast<float>(-ftrl.learning_rate_power),
            .l1 = static_cast<float>(ftrl.l1_regularization_strength),
            .two_l2 = static_cast<float>(2 * ftrl.l2_regularization_strength + ftrl.beta / step.learning_rate),
            .two_shrinkage = static_cast<float>(2 * ftrl.l2_shrinkage_regularization_strength)};
  }
};

}  // namespace lockstep
