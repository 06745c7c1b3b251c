// Adadelta: fields, slots and update rule.
#pragma once

#include "optimizers/optimizer_traits.hpp"

#include <lockstep/optimizers/adadelta.hpp>

#include <cmath>

namespace lockstep {

struct AdadeltaUpdate {
  static constexpr int num_slots = 2;
  float rate;
  float rho;
  float epsilon;

  LOCKSTEP_HOST_DEVICE void operator()(float& w, float g, float& square_avg, float& change_avg) const {
    square_avg = rho * square_avg + (1.0F - rho) * (g * g);
    const float change = -(std::sqrt(change_avg + epsilon) * g / std::sqrt(square_avg + epsilon));
    change_avg = rho * change_avg + (1.0F - rho) * (change * change);
    w += rate * change;
  }
};

template <>
struct OptimizerTraits<Adadelta> {
  static constexpr std::string_view class_name = "Adadelta";
  static constexpr std::string_view object_name = "adadelta";

  static void fields(auto& visit, auto& adadelta) {
    visit.optional("rho", adadelta.rho, zero_to_one);
    visit.optional("epsilon", adadelta.epsilon, positive);
  }

  static Slots slots(const Adadelta& /*adadelta*/) {
    return {{"accumulated_grad"}, {.name = "accumulated_delta_var", .is_interleaved = true}};
  }

  static AdadeltaUpdate update(const Adadelta& adadelta, const StepTime& step) {
    return {static_cast<float>(step.learning_rate), static_cast<float>(adadelta.rho),
            static_cast<float>(adadelta.epsilon)};
  }
};

}  // namespace lockstep
