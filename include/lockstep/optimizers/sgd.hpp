// Stochastic gradient descent, keras.optimizers.SGD.
#pragma once

#include <lockstep/optimizers/learning_rate.hpp>

namespace lockstep {

/// Without momentum: w -= lr g.
/// Else v = momentum v - lr g, then w += v, or with Nesterov w += momentum v - lr g (the new v).
struct SGD {
  LearningRate learning_rate = 0.01;
  double momentum = 0.0;
  bool nesterov = false;
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
