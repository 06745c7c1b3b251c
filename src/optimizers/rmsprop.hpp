// RMSprop: fields, slots and update rules.
#pragma once

#include "optimizers/optimizer_traits.hpp"

#include <lockstep/optimizers/rmsprop.hpp>

#include <cmath>
#include <variant>

namespace lockstep {

template <bool has_momentum, bool centered>
struct RMSpropUpdate {
  static constexpr int num_slots = 1 + (has_momentum ? 1 : 0) + (centered ? 1 : 0);
  float rate;
  float rho;
  float momentum;
  float epsilon;

  /// `others`: the momentum buffer if there is momentum, then the gradient's average if centered.
  template <typename... Others>
  LOCKSTEP_HOST_DEVICE void operator()(float& w, float g, float& square_avg, Others&... others) const {
    float* const optional[] = {&others..., nullptr};  // NOLINT(*-avoid-c-arrays): compiled for the device
    square_avg = rho * square_avg + (1.0F - rho) * g * g;
    float denominator = square_avg + epsilon;
    if constexpr (centered) {
      float& grad_avg = *optional[has_momentum ? 1 : 0];
      grad_avg = rho * grad_avg + (1.0F - rho) * g;
      denominator -= grad_avg * grad_avg;
    }
    float increment = rate * g / std::sqrt(denominator);
    if constexpr (has_momentum) {
      float& momentum_buffer = *optional[0];
      momentum_buffer = momentum * momentum_buffer + increment;
      increment = momentum_buffer;
    }
    w -= increment;
  }
};

template <>
struct OptimizerTraits<RMSprop> {
  static constexpr std::string_view class_name = "RMSprop";
  static constexpr std::string_view object_name = "rmsprop";

  static void fields(auto& visit, auto& rmsprop) {
    visit.optional("rho", rmsprop.rho, below_one);
    visit.optional("momentum", rmsprop.momentum, zero_to_one);
    visit.optional("epsilon", rmsprop.epsilon, positive);
    visit.optional("centered", rmsprop.centered);
  }

  static Slots slots(const RMSprop& rmsprop) {
    Slots all{{"velocity"}};
    if (rmsprop.momentum > 0) all.push_back({"momentum"});
    if (rmsprop.centered) all.push_back({"average_gradient"});
    return all;
  }

  using Update = std::variant<RMSpropUpdate<false, false>, RMSpropUpdate<false, true>, RMSpropUpdate<true, false>,
                              RMSpropUpdate<true, true>>;

  static Update update(const RMSprop& rmsprop, const StepTime& step) {
    const auto make = [&]<typename Rule>(Rule /*type*/) -> Update {
      return Rule{static_cast<float>(step.learning_rate), static_cast<float>(rmsprop.rho),
                  static_cast<float>(rmsprop.momentum), static_cast<float>(rmsprop.epsilon)};
    };
    if (rmsprop.momentum > 0) {
      return rmsprop.centered ? make(RMSpropUpdate<true, true>()) : make(RMSpropUpdate<true, false>());
    }
    return rmsprop.centered ? make(RMSpropUpdate<false, true>()) : make(RMSpropUpdate<false, false>());
  }
};

}  // namespace lockstep
