// The losses of the reference, in double precision. They share no code with src/losses.
#pragma once

#include <lockstep/layers/activation.hpp>
#include <lockstep/losses/losses.hpp>

#include <span>
#include <vector>

namespace lockstep::reference {

/// One example's loss and its gradient with respect to the model's output.
struct LossValue {
  double loss = 0;
  std::vector<double> gradient;
};

/// `target`: a class index for SparseCategoricalCrossentropy, else as many numbers as outputs. `activation`: of the
/// output. After softmax and sigmoid their crossentropies are those of the logits: outputs are not clipped, and
/// `from_logits` says nothing.
[[nodiscard]] LossValue loss_of(const Loss& loss, std::span<const double> output, std::span<const double> target,
                                ActivationFunction activation);

/// What a reduction makes of a batch.
struct ReducedScale {
  double gradient = 1;  ///< of each example's gradient
  double loss = 1;      ///< of the reported sum of losses
};
[[nodiscard]] ReducedScale scale_of(const Loss& loss, double global_batch, double total_weight);

}  // namespace lockstep::reference
