// The metric that a callback monitors, and its best value so far.
#pragma once

#include <lockstep/core/history.hpp>

#include <optional>
#include <string>

namespace lockstep {

/// Which way a monitored metric improves. automatic: as the metric of this name does that the model is compiled with,
/// else as Keras' metric of this name; of others, up if the name contains "acc", down if it contains "loss".
enum class MonitorMode { automatic, min, max };

/// "auto", "min" or "max".
[[nodiscard]] std::string to_string(MonitorMode mode);

class Model;

/// Compares a metric with its best value so far. A callback calls begin() in its on_train_begin().
class Monitor {
 public:
  Monitor(std::string metric, MonitorMode mode, double min_delta);

  /// Forgets the best value. Throws UsageError if `automatic` cannot tell which way the metric improves.
  void begin(const Model& model);

  [[nodiscard]] const std::string& metric() const noexcept { return metric_; }

  /// The metric's value in `logs`. If it is missing, warns once and returns nullopt.
  [[nodiscard]] std::optional<double> value(const Logs& logs);

  /// Whether `value` is better than `reference` by more than min_delta. Throws UsageError before begin().
  [[nodiscard]] bool improves(double value, double reference) const;

  /// Stores the value as the best if it improves on it. Returns whether it does. Throws UsageError before begin().
  bool update(double value);
  [[nodiscard]] double best() const noexcept { return best_; }
  void set_best(double best) noexcept { best_ = best; }

 private:
  std::string metric_;
  MonitorMode mode_;
  std::optional<bool> upward_;  ///< known once training begins
  double min_delta_;
  double best_ = 0;
  bool warned_ = false;
};

}  // namespace lockstep
