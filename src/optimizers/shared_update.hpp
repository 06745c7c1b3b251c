// What every optimizer can do around its update rule: accumulate gradients over several steps, decay weights, and keep
// moving averages of the weights. Both backends compile it.
#pragma once

#include "core/host_device.hpp"

namespace lockstep {

/// What one step does of it. The slots that it needs come before those of the update rule: the averages, if any, then
/// the accumulated gradients, if any.
struct SharedUpdate {
  float decay = 0;              ///< learning rate times weight decay; 0 if the rule decays weights itself
  int accumulated_steps = 0;    ///< 0: no accumulation
  bool changes_weights = true;  ///< false in steps that only accumulate
  bool averages = false;
  float average_momentum = 0;
  bool overwrites = false;  ///< replaces the weights by their averages

  [[nodiscard]] LOCKSTEP_HOST_DEVICE int num_slots() const { return accumulator_slot() + (accumulates() ? 1 : 0); }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE int accumulator_slot() const { return averages ? 1 : 0; }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE bool accumulates() const { return accumulated_steps > 0; }

  /// The mean of the accumulated gradients and this step's.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float mean_gradient(float g, float accumulated) const {
    return (g + accumulated) / static_cast<float>(accumulated_steps);
  }
  LOCKSTEP_HOST_DEVICE void average(float& w, float& moving) const {
    moving = average_momentum * moving + (1.0F - average_momentum) * w;
    if (overwrites) w = moving;
  }
};

}  // namespace lockstep
