// How a loss's reduction scales the losses of examples and their gradients.
#pragma once

#include "backend/step_context.hpp"

#include <lockstep/losses/losses.hpp>

namespace lockstep {

struct LossScale {
  double gradient = 1;  ///< of each example's loss
  /// Of the sum of the losses, so that the sum of the steps' sums, divided by all examples, is the mean of the steps'
  /// losses weighted by their examples, which Keras reports.
  double loss = 1;
};

[[nodiscard]] inline LossScale loss_scale(Reduction reduction, const StepContext& context) {
  switch (reduction) {
    case Reduction::sum: return {1, 1 / context.gradient_scale};
    case Reduction::mean_with_sample_weight:
      if (context.sample_weights.empty()) break;
      if (context.total_weight == 0) return {0, 0};
      return {1 / context.total_weight, 1 / (context.gradient_scale * context.total_weight)};
    case Reduction::sum_over_batch_size: break;
  }
  return {context.gradient_scale, 1};
}

}  // namespace lockstep
