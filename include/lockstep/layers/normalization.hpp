// Layers that normalize activations.
#pragma once

#include <lockstep/layers/callable.hpp>

#include <string>
#include <utility>

namespace lockstep {

struct BatchNormalizationOptions {
  double momentum = 0.99;
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  std::string name = {};
};

/// Normalizes over the last axis with the statistics of a replica's slice of the batch. The moving statistics (biased
/// variance) are averaged over the replicas at every step, so all workers hold the same.
struct BatchNormalization : BatchNormalizationOptions, CallableLayer<BatchNormalization> {
  explicit BatchNormalization(BatchNormalizationOptions options = {}) : BatchNormalizationOptions(std::move(options)) {}
};

}  // namespace lockstep
