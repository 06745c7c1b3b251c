// keras.optimizers.Nadam.
#pragma once

#include <lockstep/optimizers/learning_rate.hpp>

namespace lockstep {

/// Adam with Nesterov momentum. m and v as Adam; u(i) = beta_1 (1 - 0.96^i / 2), U(i) = u(1) ... u(i);
/// w -= lr (u(t + 1) m / (1 - U(t + 1)) + (1 - u(t)) g / (1 - U(t))) / (sqrt(v / (1 - beta_2^t)) + epsilon).
struct Nadam {
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
