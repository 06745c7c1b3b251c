// Adam and AdamW: fields, slots and the update rule that they share.
#pragma once

#include "optimizers/optimizer_traits.hpp"

#include <lockstep/optimizers/adam.hpp>

#include <cmath>

namespace lockstep {

struct AdamUpdate {
  static constexpr int num_slots = 2;
  float decay;  ///< learning rate times weight decay
  float alpha;  ///< learning rate, bias corrected
  float one_minus_beta_1;
  float one_minus_beta_2;
  float epsilon;

  LOCKSTEP_HOST_DEVICE void operator()(float& w, float g, float& exp_avg, float& exp_avg_sq) const {
    exp_avg += (g - exp_avg) * one_minus_beta_1;
    exp_avg_sq += (g * g - exp_avg_sq) * one_minus_beta_2;
    w = w - w * decay - alpha * exp_avg / (std::sqrt(exp_avg_sq) + epsilon);
  }
};

/// The traits that Adam and AdamW share.
template <typename T>
struct AdamTraits {
  static void moments(auto& visit, auto& adam) {
    visit.optional("beta_1", adam.beta_1, below_one);
    visit.optional("beta_2", adam.beta_2, below_one);
    visit.optional("epsilon", adam.epsilon, positive);
    visit.constant("amsgrad", false);
  }

  static Slots slots(const T& /*adam*/) { return {.slots = {{"momentum"}, {"velocity"}}, .interleaved = true}; }

  static AdamUpdate update(const T& adam, const StepTime& step, double weight_decay) {
    const double correction = std::sqrt(1.0 - std::pow(adam.beta_2, step.t)) / (1.0 - std::pow(adam.beta_1, step.t));
    return {.decay = static_cast<float>(step.learning_rate * weight_decay),
            .alpha = static_cast<float>(step.learning_rate * correction),
            .one_minus_beta_1 = static_cast<float>(1.0 - adam.beta_1),
            .one_minus_beta_2 = static_cast<float>(1.0 - adam.beta_2),
            .epsilon = static_cast<float>(adam.epsilon)};
  }
};

template <>
struct OptimizerTraits<Adam> : AdamTraits<Adam> {
  static constexpr std::string_view class_name = "Adam";
  static constexpr std::string_view object_name = "adam";

  static void fields(auto& visit, auto& adam) { moments(visit, adam); }

  static AdamUpdate update(const Adam& adam, const StepTime& step) { return AdamTraits::update(adam, step, 0); }
};

template <>
struct OptimizerTraits<AdamW> : AdamTraits<AdamW> {
  static constexpr std::string_view class_name = "AdamW";
  static constexpr std::string_view object_name = "adamw";

  static void fields(auto& visit, auto& adam) {
    visit.optional("weight_decay", adam.weight_decay, not_negative);
    moments(visit, adam);
  }

  static AdamUpdate update(const AdamW& adam, const StepTime& step) {
    return AdamTraits::update(adam, step, adam.weight_decay);
  }
};

}  // namespace lockstep
