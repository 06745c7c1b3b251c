// The metric that a callback monitors, and its best value so far.
#pragma once

#include <lockstep/core/history.hpp>

#include <optional>
#include <string>

namespace lockstep {

/// Which way a monitored metric improves. automatic: as Keras' metric of this name does; of others, up if the name
/// contains "acc", down if it contains "loss".
enum class MonitorMode { automatic, min, max };

/// "auto", "min" or "max".
[[nodiscard]] std::string to_string(MonitorMode mode);

/// Compares a metric with its best value so far. The constructor throws UsageError if `automatic` cannot infer the
/// direction from the metric's name.
class Monitor {
 public:
  Monitor(std::string metric, MonitorMode mode, double min_delta);

  [[nodiscard]] const std::string& metric() const noexcept { return metric_; }

  /// The metric's value in `logs`. If it is missing, warns once and returns nullopt.
  [[nodiscard]] std::optional<double> value(const Logs& logs);

  /// Whether `value` is better than `reference` by more than min_delta.
  [[nodiscard]] bool improves(double value, double reference) const noexcept;

  /// Stores the value as the best if it improves on it. Returns whether it does.
  bool update(double value) noexcept;
  [[nodiscard]] double best() const noexcept { return best_; }
  void set_best(double best) noexcept { best_ = best; }
  void reset() noexcept;

 private:
  std::string metric_;
  bool upward_;
  double min_delta_;
  double best_ = 0;
  bool warned_ = false;
};

}  // namespace lockstep
