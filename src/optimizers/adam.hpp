// Adam and AdamW: fields, slots and the update rules that they share.
#pragma once

#include "optimizers/optimizer_traits.hpp"

#include <lockstep/optimizers/adam.hpp>

#include <cmath>
#include <variant>

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

/// Adam that divides by the largest second moment so far (S. Reddi et al., 2018).
struct AmsgradUpdate {
  static constexpr int num_slots = 3;
  AdamUpdate adam;

  LOCKSTEP_HOST_DEVICE void operator()(float& w, float g, float& exp_avg, float& exp_avg_sq, float& largest_sq) const {
    exp_avg += (g - exp_avg) * adam.one_minus_beta_1;
    exp_avg_sq += (g * g - exp_avg_sq) * adam.one_minus_beta_2;
    largest_sq = exp_avg_sq < largest_sq ? largest_sq : exp_avg_sq;  // NaN stays NaN
    w = w - w * adam.decay - adam.alpha * exp_avg / (std::sqrt(largest_sq) + adam.epsilon);
  }
};

/// The traits that Adam and AdamW share.
template <typename T>
struct AdamTraits {
  static constexpr bool decays_weights = true;

  static void moments(auto& visit, auto& adam) {
    visit.optional("beta_1", adam.beta_1, below_one);
    visit.optional("beta_2", adam.beta_2, below_one);
    visit.optional("epsilon", adam.epsilon, positive);
    visit.optional("amsgrad", adam.amsgrad);
  }

  static Slots slots(const T& adam) {
    Slots all{{"momentum"}, {.name = "velocity", .is_interleaved = true}};
    if (adam.amsgrad) all.push_back({"velocity_hat"});
    return all;
  }

  using Update = std::variant<AdamUpdate, AmsgradUpdate>;

  static Update update(const T& adam, const StepTime& step) {
    const double correction = std::sqrt(1.0 - std::pow(adam.beta_2, step.t)) / (1.0 - std::pow(adam.beta_1, step.t));
    const AdamUpdate plain{.decay = static_cast<float>(step.learning_rate * adam.weight_decay),
                           .alpha = static_cast<float>(step.learning_rate * correction),
                           .one_minus_beta_1 = static_cast<float>(1.0 - adam.beta_1),
                           .one_minus_beta_2 = static_cast<float>(1.0 - adam.beta_2),
                           .epsilon = static_cast<float>(adam.epsilon)};
    if (adam.amsgrad) return AmsgradUpdate{plain};
    return plain;
  }
};

template <>
struct OptimizerTraits<Adam> : AdamTraits<Adam> {
  static constexpr std::string_view class_name = "Adam";
  static constexpr std::string_view object_name = "adam";

  static void fields(auto& visit, auto& adam) {
    moments(visit, adam);
    visit.written_if(adam.weight_decay > 0, "weight_decay", adam.weight_decay, not_negative);
  }
};

template <>
struct OptimizerTraits<AdamW> : AdamTraits<AdamW> {
  static constexpr std::string_view class_name = "AdamW";
  static constexpr std::string_view object_name = "adamw";

  static void fields(auto& visit, auto& adam) {
    visit.optional("weight_decay", adam.weight_decay, not_negative);
    moments(visit, adam);
  }
};

}  // namespace lockstep
