// Bodies of the optimizers: one element's step, by the formulas of nn/optimizers.hpp. Scalars come from the step's
// arguments, so that a recorded step follows the learning rate.
#pragma once

#include "backend/cuda/elements.hpp"

#include <lockstep/nn/optimizers.hpp>

#include <cmath>
#include <cstdint>

namespace lockstep::cuda {

enum class UpdateKind { sgd, momentum, nesterov, adam, rmsprop };

[[nodiscard]] inline UpdateKind kind_of(const Optimizer& optimizer) {
  if (const auto* sgd = std::get_if<SGD>(&optimizer)) {
    if (sgd->momentum == 0) return UpdateKind::sgd;
    return sgd->nesterov ? UpdateKind::nesterov : UpdateKind::momentum;
  }
  return std::holds_alternative<RMSprop>(optimizer) ? UpdateKind::rmsprop : UpdateKind::adam;
}

/// What depends on the iteration, computed once a step, in double precision.
[[nodiscard]] inline OptimizerScalars scalars_of(const Optimizer& optimizer, std::uint64_t iteration) {
  OptimizerScalars s;
  const double rate = learning_rate_of(optimizer).at(iteration - 1);
  s.rate = static_cast<float>(rate);
  const auto adam = [&](const auto& o, double decay) {
    const auto t = static_cast<double>(iteration);
    const double correction = std::sqrt(1.0 - std::pow(o.beta_2, t)) / (1.0 - std::pow(o.beta_1, t));
    s.alpha = static_cast<float>(rate * correction);
    s.decay = static_cast<float>(rate * decay);
    s.one_minus_beta_1 = static_cast<float>(1.0 - o.beta_1);
    s.one_minus_beta_2 = static_cast<float>(1.0 - o.beta_2);
    s.epsilon = static_cast<float>(o.epsilon);
  };
  if (const auto* o = std::get_if<SGD>(&optimizer)) s.momentum = static_cast<float>(o->momentum);
  if (const auto* o = std::get_if<Adam>(&optimizer)) adam(*o, 0.0);
  if (const auto* o = std::get_if<AdamW>(&optimizer)) adam(*o, o->weight_decay);
  if (const auto* o = std::get_if<RMSprop>(&optimizer)) {
    s.rho = static_cast<float>(o->rho);
    s.momentum = static_cast<float>(o->momentum);
    s.epsilon = static_cast<float>(o->epsilon);
  }
  return s;
}

/// Slot k of an element; null slots are those the optimizer lacks.
struct UpdateElement {
  const StepArguments* arguments;
  UpdateKind kind;
  const float* gradients;
  float* weights;
  float* slot_0;
  float* momentum_slot;  ///< RMSprop with momentum; Adam's velocity
  float* average_slot;   ///< RMSprop, centered
  std::uint16_t* low_precision;
  const float* scale = nullptr;  ///< of a gradient whose norm is clipped
  float bound = 0;               ///< of a gradient whose values are clipped

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const OptimizerScalars& s = arguments->optimizer;
    const float g = clipped(gradients[i]);
    float w = weights[i];
    switch (kind) {
      case UpdateKind::sgd: w -= s.rate * g; break;
      case UpdateKind::momentum:
        slot_0[i] = s.momentum * slot_0[i] - s.rate * g;
        w += slot_0[i];
        break;
      case UpdateKind::nesterov:
        slot_0[i] = s.momentum * slot_0[i] - s.rate * g;
        w += s.momentum * slot_0[i] - s.rate * g;
        break;
      case UpdateKind::adam: {
        const float m = slot_0[i] + (g - slot_0[i]) * s.one_minus_beta_1;
        const float v = momentum_slot[i] + (g * g - momentum_slot[i]) * s.one_minus_beta_2;
        slot_0[i] = m;
        momentum_slot[i] = v;
        w = w - w * s.decay - s.alpha * m / (std::sqrt(v) + s.epsilon);
        break;
      }
      case UpdateKind::rmsprop: w -= rmsprop_increment(s, i, g); break;
    }
    weights[i] = w;
    if (low_precision != nullptr) low_precision[i] = BFloat16(w).bits;
  }

 private:
  /// NaN stays NaN, as in Keras.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float clipped(float g) const {
    if (scale != nullptr) return *scale * g;
    if (bound == 0.0F) return g;
    return g > bound ? bound : g < -bound ? -bound : g;
  }

  [[nodiscard]] LOCKSTEP_HOST_DEVICE float rmsprop_increment(const OptimizerScalars& s, Index i, float g) const {
    slot_0[i] = s.rho * slot_0[i] + (1.0F - s.rho) * g * g;
    float denominator = slot_0[i] + s.epsilon;
    if (average_slot != nullptr) {
      average_slot[i] = s.rho * average_slot[i] + (1.0F - s.rho) * g;
      denominator -= average_slot[i] * average_slot[i];
    }
    const float increment = s.rate * g / std::sqrt(denominator);
    if (momentum_slot == nullptr) return increment;
    momentum_slot[i] = s.momentum * momentum_slot[i] + increment;
    return momentum_slot[i];
  }
};

/// A moving average; with momentum 0 the value itself.
struct AverageElement {
  const float* gradients;
  float* weights;
  float momentum;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    weights[i] = momentum == 0.0F ? gradients[i] : momentum * weights[i] + (1.0F - momentum) * gradients[i];
  }
};

struct RoundElement {
  const float* weights;
  std::uint16_t* low_precision;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const { low_precision[i] = BFloat16(weights[i]).bits; }
};

}  // namespace lockstep::cuda
