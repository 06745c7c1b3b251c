// keras.optimizers.Adadelta.
#pragma once

#include <lockstep/optimizers/learning_rate.hpp>

namespace lockstep {

/// a = rho a + (1 - rho) g^2; d = -sqrt(b + epsilon) / sqrt(a + epsilon) g; b = rho b + (1 - rho) d^2; w += lr d.
struct Adadelta {
  LearningRate learning_rate = 0.001;
  double rho = 0.95;
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
