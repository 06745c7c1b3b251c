// Adam and AdamW, keras.optimizers.Adam and AdamW.
#pragma once

#include <lockstep/optimizers/learning_rate.hpp>

namespace lockstep {

/// m += (g - m)(1 - beta_1); v += (g^2 - v)(1 - beta_2);
/// w -= lr sqrt(1 - beta_2^t) / (1 - beta_1^t) m / (sqrt(v) + epsilon).
struct Adam {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  bool amsgrad = false;  ///< divides by the largest v so far
  double weight_decay = 0;
  double clipnorm = 0;
  double clipvalue = 0;
  double global_clipnorm = 0;
  bool use_ema = false;
  double ema_momentum = 0.99;
  int ema_overwrite_frequency = 0;
  int gradient_accumulation_steps = 0;
};

/// w -= lr weight_decay w, then Adam's step.
struct AdamW {
  LearningRate learning_rate = 0.001;
  double weight_decay = 0.004;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  bool amsgrad = false;  ///< divides by the largest v so far
  double clipnorm = 0;
  double clipvalue = 0;
  double global_clipnorm = 0;
  bool use_ema = false;
  double ema_momentum = 0.99;
  int ema_overwrite_frequency = 0;
  int gradient_accumulation_steps = 0;
};

}  // namespace lockstep
