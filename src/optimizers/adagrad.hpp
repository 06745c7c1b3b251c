// Adagrad: fields, slots and update rule.
#pragma once

#include "optimizers/optimizer_traits.hpp"

#include <lockstep/optimizers/adagrad.hpp>

#include <cmath>

namespace lockstep {

struct AdagradUpdate {
  static constexpr int num_slots = 1;
  static constexpr bool ignores_zero_gradients = true;
  float rate;
  float epsilon;

  LOCKSTEP_HOST_DEVICE void operator()(float& w, float g, float& sum_sq) const {
    sum_sq += g * g;
    w -= rate * g / std::sqrt(sum_sq + epsilon);
  }
};

template <>
struct OptimizerTraits<Adagrad> {
  static constexpr std::string_view class_name = "Adagrad";
  static constexpr std::string_view object_name = "adagrad";

  static void fields(auto& visit, auto& adagrad) {
    visit.optional("initial_accumulator_value", adagrad.initial_accumulator_value, not_negative);
    visit.optional("epsilon", adagrad.epsilon, positive);
  }

  static Slots slots(const Adagrad& adagrad) {
    return {{"accumulator", static_cast<float>(adagrad.initial_accumulator_value)}};
  }

  static AdagradUpdate update(const Adagrad& adagrad, const StepTime& step) {
    return {static_cast<float>(step.learning_rate), static_cast<float>(adagrad.epsilon)};
  }
};

}  // namespace lockstep
