// keras.optimizers.RMSprop.
#pragma once

#include <lockstep/optimizers/learning_rate.hpp>

namespace lockstep {

/// v = rho v + (1 - rho) g^2; d = v + epsilon; centered: a = rho a + (1 - rho) g, d -= a^2; i = lr g / sqrt(d).
/// Without momentum: w -= i. Else p = momentum p + i; w -= p.
struct RMSprop {
  LearningRate learning_rate = 0.001;
  double rho = 0.9;
  double momentum = 0.0;
  double epsilon = 1e-7;
  bool centered = false;
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
