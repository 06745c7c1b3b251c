// Metrics that are the mean of a loss: names and rules.
#pragma once

#include "core/fields.hpp"
#include "losses/loss_registry.hpp"
#include "metrics/metric_traits.hpp"

#include <lockstep/metrics/metrics.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>

namespace lockstep {

/// For rules of losses: only the loss is wanted.
struct NoGradient {
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static bool is_wanted() { return false; }
  template <typename Index>
  LOCKSTEP_HOST_DEVICE void operator()(Index /*k*/, float /*derivative*/) const {}
};

template <typename LossRule>
struct MeanLossRule {
  static constexpr std::size_t max_sums = 1;

  LossRule loss;

  template <typename Index, typename Target>
  LOCKSTEP_HOST_DEVICE void operator()(const float* output, Index count, const Target& target, float weight,
                                       double* sums) const {
    sums[0] += weight * loss(output, count, target, NoGradient());
  }
};

/// The traits that the means of losses share. `Loss` has the names and the fields of the metric, and more.
template <typename Loss>
struct MeanLossMetricTraits : MeanOverExamples {
  static constexpr std::string_view class_name = LossTraits<Loss>::class_name;
  static constexpr std::string_view name = LossTraits<Loss>::function_name;
  static constexpr bool is_function = true;
  static constexpr const auto& aliases = LossTraits<Loss>::aliases;
  static constexpr MetricTargets targets =
      LossTraits<Loss>::takes_classes ? MetricTargets::classes : MetricTargets::dense;
  static constexpr bool is_per_vector = LossTraits<Loss>::is_per_vector;
  static constexpr bool is_upward = false;

  static void fields(auto& visit, auto& metric) {
    if constexpr (requires { metric.from_logits; }) visit.optional("from_logits", metric.from_logits);
    if constexpr (requires { metric.label_smoothing; })
      visit.optional("label_smoothing", metric.label_smoothing, zero_to_one);
    visit.expected("axis", -1);
  }

  template <typename Metric>
  static auto rule(const Metric& metric) {
    Loss loss;
    if constexpr (requires { metric.from_logits; }) loss.from_logits = metric.from_logits;
    if constexpr (requires { metric.label_smoothing; }) loss.label_smoothing = metric.label_smoothing;
    if constexpr (requires { metric.clips_probabilities; }) loss.clips_probabilities = metric.clips_probabilities;
    return MeanLossRule<decltype(LossTraits<Loss>::rule(loss))>{LossTraits<Loss>::rule(loss)};
  }
};

template <>
struct MetricTraits<metrics::MeanAbsoluteError> : MeanLossMetricTraits<MeanAbsoluteError> {};

template <>
struct MetricTraits<metrics::MeanSquaredError> : MeanLossMetricTraits<MeanSquaredError> {};

template <>
struct MetricTraits<metrics::RootMeanSquaredError> : MeanLossMetricTraits<MeanSquaredError> {
  static constexpr std::string_view class_name = "RootMeanSquaredError";
  static constexpr std::string_view name = "root_mean_squared_error";
  static constexpr bool is_function = false;
  static constexpr std::array<std::string_view, 0> aliases{};

  static double value(const metrics::RootMeanSquaredError& /*metric*/, std::span<const double> sums, double total) {
    return std::sqrt(divide_no_nan(sums[0], total));
  }
};

template <>
struct MetricTraits<metrics::MeanAbsolutePercentageError> : MeanLossMetricTraits<MeanAbsolutePercentageError> {};

template <>
struct MetricTraits<metrics::MeanSquaredLogarithmicError> : MeanLossMetricTraits<MeanSquaredLogarithmicError> {};

template <>
struct MetricTraits<metrics::LogCoshError> : MeanLossMetricTraits<LogCosh> {
  static constexpr std::string_view class_name = "LogCoshError";
  static constexpr std::string_view name = "logcosh";
  static constexpr bool is_function = false;
  static constexpr std::array<std::string_view, 0> aliases{};
  static constexpr bool is_class_in_files = true;
};

template <>
struct MetricTraits<metrics::CosineSimilarity> : MeanLossMetricTraits<CosineSimilarity> {
  static constexpr bool is_function = false;
  static constexpr bool is_upward = true;

  static MeanLossRule<CosineRule> rule(const metrics::CosineSimilarity& /*metric*/) { return {{.sign = 1.0F}}; }
};

template <>
struct MetricTraits<metrics::KLDivergence> : MeanLossMetricTraits<KLDivergence> {};

template <>
struct MetricTraits<metrics::Poisson> : MeanLossMetricTraits<Poisson> {};

template <>
struct MetricTraits<metrics::BinaryCrossentropy> : MeanLossMetricTraits<BinaryCrossentropy> {};

template <>
struct MetricTraits<metrics::CategoricalCrossentropy> : MeanLossMetricTraits<CategoricalCrossentropy> {};

template <>
struct MetricTraits<metrics::SparseCategoricalCrossentropy> : MeanLossMetricTraits<SparseCategoricalCrossentropy> {};

template <>
struct MetricTraits<metrics::Hinge> : MeanLossMetricTraits<Hinge> {};

template <>
struct MetricTraits<metrics::SquaredHinge> : MeanLossMetricTraits<SquaredHinge> {};

template <>
struct MetricTraits<metrics::CategoricalHinge> : MeanLossMetricTraits<CategoricalHinge> {};

}  // namespace lockstep
