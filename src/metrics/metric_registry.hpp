// The list of metrics: includes the traits of all, and queries them for any metric.
#pragma once

#include "metrics/accuracy.hpp"
#include "metrics/mean_error.hpp"
#include "metrics/metric_traits.hpp"

#include <lockstep/losses/losses.hpp>
#include <lockstep/metrics/metrics.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <variant>

namespace lockstep {

/// Calls visitor(rule) with a metric's rule; returns what it returns.
template <typename Visitor>
decltype(auto) with_metric_rule(const Metric& metric, Visitor&& visitor) {
  return std::visit(
      [&]<typename T>(const T& options) -> decltype(auto) { return visitor(MetricTraits<T>::rule(options)); }, metric);
}

[[nodiscard]] std::size_t num_sums(const Metric& metric) noexcept;

/// Of all metrics together.
[[nodiscard]] std::size_t num_sums(std::span<const Metric> metrics) noexcept;

/// Calls visitor(name, value) for each metric. `sums` are those of the metrics, one after the other. Without examples
/// every metric is 0, and there may be no sums.
template <typename Visitor>
void visit_metric_values(std::span<const Metric> metrics, std::span<const double> sums, double num_examples,
                         const Visitor& visitor) {
  std::size_t begin = 0;
  for (const Metric& metric : metrics) {
    const std::size_t count = num_sums(metric);
    const auto value_of = [&]<typename T>(const T& /*options*/) {
      return MetricTraits<T>::value(sums.subspan(begin, count), num_examples);
    };
    visitor(keras_name(metric), num_examples > 0 ? std::visit(value_of, metric) : 0.0);
    begin += count;
  }
}

/// Whether the text is the metric's name or one of its short names.
template <typename T>
[[nodiscard]] bool is_name_of(std::string_view text) {
  const auto& aliases = MetricTraits<T>::aliases;
  return text == MetricTraits<T>::name || std::find(aliases.begin(), aliases.end(), text) != aliases.end();
}

/// Whether a larger value of the metric of this name is a better one; none if there is no such metric.
[[nodiscard]] std::optional<bool> is_upward_metric(std::string_view name) noexcept;

/// Throws UsageError unless all metrics have different names and are defined for the loss' targets and for outputs of
/// this rank.
void check(std::span<const Metric> metrics, const Loss& loss, std::size_t output_rank);

}  // namespace lockstep
