// See monitor.hpp.
#include "core/log.hpp"
#include "metrics/metric_registry.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/callbacks/monitor.hpp>

#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace lockstep {

namespace {

bool is_upward(const std::string& metric, MonitorMode mode) {
  if (mode != MonitorMode::automatic) return mode == MonitorMode::max;
  constexpr std::string_view validation = "val_";
  const std::string_view name = std::string_view(metric).substr(metric.starts_with(validation) ? validation.size() : 0);
  if (const std::optional<bool> is_upward = is_upward_metric(name)) return *is_upward;
  if (metric.find("acc") != std::string::npos) return true;
  if (metric.find("loss") != std::string::npos) return false;
  throw UsageError("the name '" + metric +
                   "' does not show whether a higher or a lower value is better; set the callback's mode");
}

}  // namespace

std::string to_string(MonitorMode mode) {
  switch (mode) {
    case MonitorMode::min: return "min";
    case MonitorMode::max: return "max";
    case MonitorMode::automatic: break;
  }
  return "auto";
}

Monitor::Monitor(std::string metric, MonitorMode mode, double min_delta)
    : metric_(std::move(metric)), upward_(is_upward(metric_, mode)), min_delta_(std::abs(min_delta)) {
  reset();
}

void Monitor::reset() noexcept {
  best_ = upward_ ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
}

std::optional<double> Monitor::value(const Logs& logs) {
  if (const auto found = logs.find(metric_); found != logs.end()) return found->second;
  if (!warned_) {
    std::string names;
    for (const auto& [name, value] : logs) names += (names.empty() ? "" : ", ") + name;
    log_warning("a callback monitors '" + metric_ + "', which is not among the logs: " + names);
    warned_ = true;
  }
  return {};
}

bool Monitor::improves(double value, double reference) const noexcept {
  return upward_ ? value > reference + min_delta_ : value < reference - min_delta_;
}

bool Monitor::update(double value) noexcept {
  if (!improves(value, best_)) return false;
  best_ = value;
  return true;
}

}  // namespace lockstep
