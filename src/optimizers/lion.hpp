// Lion: fields, slots and update rule.
#pragma once

#include "optimizers/optimizer_traits.hpp"

#include <lockstep/optimizers/lion.hpp>

#include <cmath>

namespace lockstep {

struct LionUpdate {
  static constexpr int num_slots = 1;
  float rate;
  float beta_1;
  float beta_2;

  LOCKSTEP_HOST_DEVICE void operator()(float& w, float g, float& momentum) const {
    const float direction = momentum * beta_1 + g * (1.0F - beta_1);
    const float sign = direction > 0.0F ? 1.0F : direction < 0.0F ? -1.0F : direction;  // NaN stays NaN
    w -= rate * sign;
    momentum = momentum * beta_2 + g * (1.0F - beta_2);
  }
};

template <>
struct OptimizerTraits<Lion> {
  static constexpr std::string_view class_name = "Lion";
  static constexpr std::string_view object_name = "lion";

  static constexpr bool is_additive = true;

  static void fields(auto& visit, auto& lion) {
    visit.optional("beta_1", lion.beta_1, Interval{.min = 0, .max = 1, .includes_min = false});
    visit.optional("beta_2", lion.beta_2, zero_to_one);
  }

  static Slots slots(const Lion& /*lion*/) { return {{"momentum"}}; }

  static LionUpdate update(const Lion& lion, const StepTime& step) {
    return {static_cast<float>(step.learning_rate), static_cast<float>(lion.beta_1), static_cast<float>(lion.beta_2)};
  }
};

}  // namespace lockstep
