// keras.optimizers.Adagrad.
#pragma once

#include <lockstep/optimizers/learning_rate.hpp>

namespace lockstep {

/// a += g^2, from initial_accumulator_value on; w -= lr g / sqrt(a + epsilon).
struct Adagrad {
  LearningRate learning_rate = 0.001;
  double initial_accumulator_value = 0.1;
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
