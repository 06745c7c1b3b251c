// What `fit` returns: the metrics of every epoch, like Keras' History.
#pragma once

#include <lockstep/core/gradient_counts.hpp>

#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// Metric names ("loss", "accuracy", "val_loss", ...) and values, sorted by name as Keras sorts log keys.
using Logs = std::map<std::string, double>;

struct EpochRecord {
  int epoch = 0;  ///< counts from 0
  Logs logs;      ///< reduced over all workers: every worker has the same values
  double seconds = 0;
  double examples_per_second = 0;
  std::vector<GradientCounts> gradients = {};  ///< by worker; empty if every step is one of all workers
};

struct History {
  std::vector<EpochRecord> epochs;

  /// The metric's values at the ends of the epochs that have it.
  [[nodiscard]] std::vector<double> operator[](const std::string& metric) const;
};

}  // namespace lockstep
