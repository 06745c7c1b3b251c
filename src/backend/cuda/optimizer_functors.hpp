// Functors of the update: one element's optimizer step by the rules in optimizers/, or its moving average.
#pragma once

#include "backend/cuda/elementwise_functors.hpp"
#include "optimizers/optimizer_registry.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace lockstep::cuda {

[[nodiscard]] inline UpdateRuleBytes update_rule_of(const Optimizer& optimizer, std::uint64_t iteration) {
  UpdateRuleBytes bytes;
  with_update_rule(optimizer, iteration, [&bytes](const auto& rule) { bytes = UpdateRuleBytes(rule); });
  return bytes;
}

/// One optimizer step of one element. Reads the rule from the step's arguments, so that a replayed step uses the
/// current learning rate.
template <typename Rule>
struct UpdateElement {
  const StepArguments* arguments;
  const float* gradients;
  float* weights;
  float* slots;  ///< slot k of element i is slots[k * slot_stride + i]; first those of the SharedUpdate
  std::size_t slot_stride;
  std::uint16_t* low_precision;       ///< null without mixed precision
  const float* clip_scale = nullptr;  ///< null unless clipped by norm
  float bound = 0;                    ///< 0 unless clipped by value

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const SharedUpdate& shared = arguments->shared_update;
    float w = weights[i];
    float g = gradients[i];
    if (shared.accumulates()) {
      float& accumulated = slots[static_cast<std::size_t>(shared.accumulator_slot()) * slot_stride + i];
      const float mean = shared.mean_gradient(g, accumulated);
      accumulated = shared.changes_weights ? 0.0F : accumulated + g;
      g = mean;
    }
    if (shared.changes_weights) {
      if (shared.decay != 0.0F) w -= w * shared.decay;
      step(w, clipped(g), i, std::make_index_sequence<Rule::num_slots>());
    }
    if (shared.averages) shared.average(w, slots[i]);
    weights[i] = w;
    if (low_precision != nullptr) low_precision[i] = BFloat16(w).bits;
  }

 private:
  template <std::size_t... slot>
  LOCKSTEP_HOST_DEVICE void step(float& w, float g, Index i, std::index_sequence<slot...> /*slots*/) const {
    [[maybe_unused]] const auto first = static_cast<std::size_t>(arguments->shared_update.num_slots());
    arguments->update_rule.as<Rule>()(w, g, slots[(first + slot) * slot_stride + i]...);
  }

  /// NaN stays NaN, as in Keras.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float clipped(float g) const {
    if (clip_scale != nullptr) return *clip_scale * g;
    if (bound == 0.0F) return g;
    return g > bound ? bound : g < -bound ? -bound : g;
  }
};

/// One step of a moving average. With momentum 0 it assigns the value.
struct MovingAverageElement {
  const float* gradients;
  float* weights;
  float momentum;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    weights[i] = momentum == 0.0F ? gradients[i] : momentum * weights[i] + (1.0F - momentum) * gradients[i];
  }
};

struct RoundToBfloat16 {
  const float* weights;
  std::uint16_t* low_precision;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const { low_precision[i] = BFloat16(weights[i]).bits; }
};

}  // namespace lockstep::cuda
