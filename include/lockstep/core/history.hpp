// What `fit` returns: the metrics of every epoch, as Keras' History holds them.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// Metric name ("loss", "accuracy", "val_loss", ...) to its value; sorted as Keras sorts log keys.
using Logs = std::map<std::string, double>;

struct EpochRecord {
  int epoch = 0;  ///< counts from 0
  Logs logs;      ///< reduced over all workers: the same everywhere
  double seconds = 0;
  double images_per_second = 0;
};

struct History {
  std::vector<EpochRecord> epochs;

  /// The metric's value at the end of every epoch that has it.
  [[nodiscard]] std::vector<double> operator[](const std::string& metric) const;
};

}  // namespace lockstep
