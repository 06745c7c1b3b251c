// keras.optimizers.Adamax.
#pragma once

#include <lockstep/optimizers/learning_rate.hpp>

namespace lockstep {

/// m += (g - m)(1 - beta_1); u = max(beta_2 u, |g|); w -= lr m / ((1 - beta_1^t) (u + epsilon)).
struct Adamax {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
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
