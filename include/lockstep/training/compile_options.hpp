// What a model is compiled with.
#pragma once

#include <lockstep/losses/losses.hpp>
#include <lockstep/metrics/metrics.hpp>
#include <lockstep/optimizers/optimizers.hpp>

#include <string>
#include <vector>

namespace lockstep {

struct CompileOptions {
  Optimizer optimizer = SGD();
  Loss loss = SparseCategoricalCrossentropy();
  std::vector<Metric> metrics = {};
  std::vector<Metric> weighted_metrics = {};  ///< that weigh examples by their sample_weights
};

/// Why Lockstep cannot take over a part of how a model was compiled when it was saved; empty: it can.
struct CompileRefusals {
  std::string optimizer;
  std::string loss;
  std::string metrics;

  /// The first of them; empty if there is none.
  [[nodiscard]] const std::string& first() const noexcept {
    if (!optimizer.empty()) return optimizer;
    return loss.empty() ? metrics : loss;
  }
};

/// How a model was compiled when it was saved. Parts that are refused have default values.
struct SavedCompileOptions : CompileOptions {
  CompileRefusals refusals = {};
};

}  // namespace lockstep
