// Nadam: fields, slots and update rule.
#pragma once

#include "optimizers/optimizer_traits.hpp"

#include <lockstep/optimizers/nadam.hpp>

#include <cmath>

namespace lockstep {

struct NadamUpdate {
  static constexpr int num_slots = 2;
  float rate;
  float one_minus_beta_1;
  float one_minus_beta_2;
  float of_momentum;  ///< u(t + 1) / (1 - U(t + 1))
  float of_gradient;  ///< (1 - u(t)) / (1 - U(t))
  float of_velocity;  ///< 1 - beta_2^t
  float epsilon;

  LOCKSTEP_HOST_DEVICE void operator()(float& w, float g, float& exp_avg, float& exp_avg_sq) const {
    exp_avg += (g - exp_avg) * one_minus_beta_1;
    exp_avg_sq += (g * g - exp_avg_sq) * one_minus_beta_2;
    const float corrected = of_momentum * exp_avg + of_gradient * g;
    w -= corrected * rate / (std::sqrt(exp_avg_sq / of_velocity) + epsilon);
  }
};

template <>
struct OptimizerTraits<Nadam> {
  static constexpr std::string_view class_name = "Nadam";
  static constexpr std::string_view object_name = "nadam";

  static void fields(auto& visit, auto& nadam) {
    visit.optional("beta_1", nadam.beta_1, below_one);
    visit.optional("beta_2", nadam.beta_2, below_one);
    visit.optional("epsilon", nadam.epsilon, positive);
  }

  static Slots slots(const Nadam& /*nadam*/) { return {{"momentum"}, {.name = "velocity", .is_interleaved = true}}; }

  static NadamUpdate update(const Nadam& nadam, const StepTime& step) {
    const double now = momentum(nadam, step.t);
    const double next = momentum(nadam, step.t + 1);
    const double product = last_variable(nadam, step.t);
    return {.rate = static_cast<float>(step.learning_rate),
            .one_minus_beta_1 = static_cast<float>(1.0 - nadam.beta_1),
            .one_minus_beta_2 = static_cast<float>(1.0 - nadam.beta_2),
            .of_momentum = static_cast<float>(next / (1 - product * next)),
            .of_gradient = static_cast<float>((1 - now) / (1 - product)),
            .of_velocity = static_cast<float>(1 - std::pow(nadam.beta_2, step.t)),
            .epsilon = static_cast<float>(nadam.epsilon)};
  }

  /// U(t), which Keras' files hold after the slots.
  static double last_variable(const Nadam& nadam, double t) {
    constexpr double steps_until_one = 1000;  // then 0.96^i changes no double
    double product = std::pow(nadam.beta_1, t);
    double power = 1;
    for (double i = 1; i <= t && i < steps_until_one; ++i) {
      power *= decay;
      product *= 1 - power / 2;
    }
    return product;
  }

 private:
  static constexpr double decay = 0.96;

  static double momentum(const Nadam& nadam, double i) { return nadam.beta_1 * (1 - std::pow(decay, i) / 2); }
};

}  // namespace lockstep
