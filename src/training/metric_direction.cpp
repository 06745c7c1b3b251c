// See metric_direction.hpp.
#include "training/metric_direction.hpp"

#include "metrics/metric_registry.hpp"

#include <optional>
#include <string>
#include <string_view>

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

}  // namespace

std::optional<bool> is_upward_log(const std::optional<CompileOptions>& compiled, std::string_view name) {
  if (compiled) {
    if (const std::optional<bool> is_upward = is_upward_in(*compiled, name)) return is_upward;
  }
  if (const std::optional<bool> is_upward = is_upward_metric(name)) return is_upward;
  if (name.find("acc") != std::string_view::npos) return true;
  if (name.find("loss") != std::string_view::npos) return false;
  return std::nullopt;
}

}  // namespace lockstep
