// What a model is compiled with.
#pragma once

#include <lockstep/losses/losses.hpp>
#include <lockstep/metrics/metrics.hpp>
#include <lockstep/optimizers/optimizers.hpp>

#include <vector>

namespace lockstep {

struct CompileOptions {
  Optimizer optimizer = SGD();
  Loss loss = SparseCategoricalCrossentropy();
  std::vector<Metric> metrics = {};
  std::vector<Metric> weighted_metrics = {};  ///< that weigh examples by their sample_weights
};

}  // namespace lockstep
