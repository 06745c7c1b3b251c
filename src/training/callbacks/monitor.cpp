// See monitor.hpp.
#include "core/log.hpp"
#include "training/metric_direction.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/callbacks/monitor.hpp>
#include <lockstep/training/model.hpp>

#include <fmt/format.h>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace lockstep {

std::string to_string(MonitorMode mode) {
  switch (mode) {
    case MonitorMode::min: return "min";
    case MonitorMode::max: return "max";
    case MonitorMode::automatic: break;
  }
  return "auto";
}

Monitor::Monitor(std::string metric, MonitorMode mode, double min_delta)
    : metric_(std::move(metric)), mode_(mode), min_delta_(std::abs(min_delta)) {}

void Monitor::begin(const Model& model) {
  upward_ = mode_ == MonitorMode::max;
  if (mode_ == MonitorMode::automatic) {
    constexpr std::string_view validation = "val_";
    const std::string_view name =
        std::string_view(metric_).substr(metric_.starts_with(validation) ? validation.size() : 0);
    upward_ = is_upward_log(model.compile_options(), name);
    if (!upward_) {
      throw UsageError(fmt::format(
          "the name '{}' does not show whether a higher or a lower value is better; set the callback's mode", name));
    }
  }
  best_ = *upward_ ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
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

bool Monitor::improves(double value, double reference) const {
  if (!upward_) {
    throw UsageError("a callback compares '" + metric_ +
                     "' before Monitor::begin(model); call it in the callback's on_train_begin(model)");
  }
  return *upward_ ? value > reference + min_delta_ : value < reference - min_delta_;
}

bool Monitor::update(double value) {
  if (!improves(value, best_)) return false;
  best_ = value;
  return true;
}

}  // namespace lockstep
