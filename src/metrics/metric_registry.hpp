// The traits of all metrics, queried for any metric. lockstep/metrics/metrics.hpp
// has the list, a variant.
#pragma once

#include "metrics/accuracy.hpp"
#include "metrics/confusion.hpp"
#include "metrics/intersection.hpp"
#include "metrics/mean_loss.hpp"
#include "metrics/metric_traits.hpp"

#include <lockstep/losses/losses.hpp>
#include <lockstep/metrics/metrics.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace lockstep {

/// Visits the rule of a metric.
template <typename Visitor>
decltype(auto) with_metric_rule(const Metric& metric, Visitor&& visitor) {
  return std::visit(
      [&]<typename T>(const T& options) -> decltype(auto) { return visitor(MetricTraits<T>::rule(options)); }, metric);
}

/// The metrics of a model: those that count all examples alike, and those that weigh them. Each weighted one has one
/// sum more, of the weights.
struct MetricLists {
  std::span<const Metric> metrics;
  std::span<const Metric> weighted = {};
};

[[nodiscard]] std::size_t num_sums(const Metric& metric) noexcept;

/// Of all metrics together.
[[nodiscard]] std::size_t num_sums(const MetricLists& lists) noexcept;

/// Sets what depends on the number of a model's outputs.
void complete(std::vector<Metric>& metrics, std::int64_t outputs);

/// Calls visitor(name, metric) for each metric, the weighted ones last. A weighted metric of a name that another metric
/// has is called "weighted_...", as Keras does.
template <typename Visitor>
void visit_metrics(const MetricLists& lists, const Visitor& visitor) {
  for (const Metric& metric : lists.metrics) visitor(keras_name(metric), metric);
  for (const Metric& metric : lists.weighted) {
    const auto has_name = [&](const Metric& other) { return keras_name(other) == keras_name(metric); };
    const bool is_taken = std::any_of(lists.metrics.begin(), lists.metrics.end(), has_name);
    const std::string name = (is_taken ? "weighted_" : "") + std::string(keras_name(metric));
    visitor(std::string_view(name), metric);
  }
}

/// Calls visitor(name, value) for each metric. `sums` are those of the metrics, one after the other. Without examples
/// every metric is 0, and there may be no sums.
template <typename Visitor>
void visit_metric_values(const MetricLists& lists, std::span<const double> sums, double num_examples,
                         const Visitor& visitor) {
  std::size_t begin = 0;
  std::size_t index = 0;
  visit_metrics(lists, [&](std::string_view name, const Metric& metric) {
    const bool is_weighted = index++ >= lists.metrics.size();
    const std::size_t count = num_sums(metric);
    const auto value = [&]<typename T>(const T& options) {
      const double total = is_weighted ? sums[begin + count] : num_examples;
      return MetricTraits<T>::value(options, sums.subspan(begin, count), total);
    };
    visitor(name, num_examples > 0 ? std::visit(value, metric) : 0.0);
    begin += count + (is_weighted ? 1 : 0);
  });
}

/// Whether the text is Keras' automatic name of the metric, one of its short names, or its class.
template <typename T>
[[nodiscard]] bool is_name_of(std::string_view text) {
  const auto& aliases = MetricTraits<T>::aliases;
  return text == MetricTraits<T>::name || text == MetricTraits<T>::class_name ||
         std::find(aliases.begin(), aliases.end(), text) != aliases.end();
}

/// Whether the metric's rule reads one vector at a time, along the output's last axis.
[[nodiscard]] bool is_per_vector(const Metric& metric) noexcept;
/// Whether a larger value is a better one.
[[nodiscard]] bool is_upward(const Metric& metric) noexcept;
/// Whether a larger value of the metric of this name is a better one; none if there is no such metric.
[[nodiscard]] std::optional<bool> is_upward_metric(std::string_view name) noexcept;

/// Throws UsageError unless all metrics of a list have different names and are defined for the loss' targets and for
/// outputs of this rank.
void check(const MetricLists& lists, const Loss& loss, std::size_t output_rank);

}  // namespace lockstep
