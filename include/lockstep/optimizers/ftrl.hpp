// keras.optimizers.Ftrl.
#pragma once

#include <lockstep/optimizers/learning_rate.hpp>

namespace lockstep {

/// Follow the regularized leader. a, from initial_accumulator_value on, grows by g^2 from a to a';
/// p = -learning_rate_power; z += g + 2 l2_shrinkage w - (a'^p - a^p) / lr w;
/// w = (clip(z, -l1, l1) - z) / (a'^p / lr + 2 l2 + beta / lr).
struct Ftrl {
  LearningRate learning_rate = 0.001;
  double learning_rate_power = -0.5;
  double initial_accumulator_value = 0.1;
  double l1_regularization_strength = 0;
  double l2_regularization_strength = 0;
  double l2_shrinkage_regularization_strength = 0;
  double beta = 0;
  double weight_decay = 0;
  double clipnorm = 0;
  double clipvalue = 0;
  double global_clipnorm = 0;
  bool use_ema = false;
  double ema_momentum = 0.99;
  int ema_overwrite_frequency = 0;
  int gradient_accumulation_steps = 0;
};

}  // namespace lockstep
