// keras.optimizers.Lion.
#pragma once

#include <lockstep/optimizers/learning_rate.hpp>

namespace lockstep {

/// w -= lr sign(beta_1 m + (1 - beta_1) g); then m = beta_2 m + (1 - beta_2) g.
struct Lion {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.99;
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
