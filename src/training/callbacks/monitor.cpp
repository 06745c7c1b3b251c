// See monitor.hpp.
#include "core/log.hpp"
#include "metrics/metric_registry.hpp"

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

namespace {

/// Of the metric that logs have under this name; none if the model is compiled without it.
std::optional<bool> is_upward_in(const CompileOptions& compiled, std::string_view name) {
  std::optional<bool> found;
  const auto visit = [&](const std::string& prefix, const MetricLists& lists) {
    visit_metrics(lists, [&](std::string_view other, const Metric& metric) {
      if (prefix + std::string(other) == name && !found) found = is_upward(metric);
    });
  };
  visit("", {compiled.metrics, compiled.weighted_metrics});
  for (const OutputOptions& output : compiled.outputs) {
    if (output.output + "_loss" == name) return false;
    visit(output.output + "_", {output.metrics, output.weighted_metrics});
  }
  return found;
}

bool is_upward_by_name(std::string_view name) {
  if (const std::optional<bool> is_upward = is_upward_metric(name)) return *is_upward;
  if (name.find("acc") != std::string_view::npos) return true;
  if (name.find("loss") != std::string_view::npos) return false;
  throw UsageError(fmt::format(
      "the name '{}' does not show whether a higher or a lower value is better; set the callback's mode", name));
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
    : metric_(std::move(metric)), mode_(mode), min_delta_(std::abs(min_delta)) {}

void Monitor::begin(const Model& model) {
  upward_ = mode_ == MonitorMode::max;
  if (mode_ == MonitorMode::automatic) {
    constexpr std::string_view validation = "val_";
    const std::string_view name =
        std::string_view(metric_).substr(metric_.starts_with(validation) ? validation.size() : 0);
    const std::optional<CompileOptions> compiled = model.compile_options();
    const std::optional<bool> of_metric = compiled ? is_upward_in(*compiled, name) : std::nullopt;
    upward_ = of_metric ? *of_metric : is_upward_by_name(name);
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
