// What a model is compiled with.
#pragma once

#include <lockstep/losses/losses.hpp>
#include <lockstep/metrics/metrics.hpp>
#include <lockstep/optimizers/optimizers.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// How one of several outputs is trained. Logs call its loss `{output}_loss` and its metrics `{output}_{metric}`.
struct OutputOptions {
  std::string output = {};  ///< the name of the layer; empty: the output at this place
  Loss loss = SparseCategoricalCrossentropy();
  double loss_weight = 1;  ///< of its loss in the sum that is trained
  std::vector<Metric> metrics = {};
  std::vector<Metric> weighted_metrics = {};
};

struct CompileOptions {
  Optimizer optimizer = SGD();
  Loss loss = SparseCategoricalCrossentropy();  ///< of several outputs: of each, unless `outputs` says more
  std::vector<Metric> metrics = {};
  std::vector<Metric> weighted_metrics = {};  ///< that weigh examples by their sample_weights
  std::vector<OutputOptions> outputs = {};    ///< of a model with several outputs: all of them, or none
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
  std::uint64_t saved_iterations = 0;  ///< optimizer steps when it was saved; set by load_model()
};

}  // namespace lockstep
