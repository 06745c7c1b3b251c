// SGD: fields, slots and update rules.
#pragma once

#include "optimizers/optimizer_traits.hpp"

#include <lockstep/optimizers/sgd.hpp>

#include <variant>

namespace lockstep {

struct SGDUpdate {
  static constexpr int num_slots = 0;
  static constexpr bool ignores_zero_gradients = true;
  float rate;

  LOCKSTEP_HOST_DEVICE void operator()(float& w, float g) const { w -= rate * g; }
};

template <bool nesterov>
struct MomentumUpdate {
  static constexpr int num_slots = 1;
  float rate;
  float momentum;

  LOCKSTEP_HOST_DEVICE void operator()(float& w, float g, float& velocity) const {
    velocity = momentum * velocity - rate * g;
    w += nesterov ? momentum * velocity - rate * g : velocity;
  }
};

template <>
struct OptimizerTraits<SGD> {
  static constexpr std::string_view class_name = "SGD";
  static constexpr std::string_view object_name = "SGD";

  static constexpr bool is_additive = true;

  static void fields(auto& visit, auto& sgd) {
    visit.optional("momentum", sgd.momentum, zero_to_one);
    visit.optional("nesterov", sgd.nesterov);
  }

  static Slots slots(const SGD& sgd) { return sgd.momentum != 0 ? Slots{{"momentum"}} : Slots{}; }

  using Update = std::variant<SGDUpdate, MomentumUpdate<false>, MomentumUpdate<true>>;

  static Update update(const SGD& sgd, const StepTime& step) {
    const auto rate = static_cast<float>(step.learning_rate);
    const auto momentum = static_cast<float>(sgd.momentum);
    if (sgd.momentum == 0) return SGDUpdate{rate};
    if (sgd.nesterov) return MomentumUpdate<true>{rate, momentum};
    return MomentumUpdate<false>{rate, momentum};
  }
};

}  // namespace lockstep
