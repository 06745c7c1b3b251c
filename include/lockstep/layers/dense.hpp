// Fully connected layers.
#pragma once

#include <lockstep/layers/activation.hpp>
#include <lockstep/layers/callable.hpp>
#include <lockstep/layers/constraint.hpp>
#include <lockstep/layers/initializer.hpp>
#include <lockstep/layers/regularizer.hpp>

#include <string>
#include <utility>

namespace lockstep {

struct DenseOptions {
  ActivationFunction activation = ActivationFunction::linear;
  bool use_bias = true;
  Initializer kernel_initializer = Initializer::glorot_uniform;
  Initializer bias_initializer = Initializer::zeros;
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};  ///< of the output
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  std::string name = {};
};

/// y = activation(x W + b) with a kernel W of shape [in, units], along the last axis of its input.
struct Dense : DenseOptions, CallableLayer<Dense> {
  explicit Dense(int units_, DenseOptions options = {}) : DenseOptions(std::move(options)), units(units_) {}
  int units;
};

}  // namespace lockstep
