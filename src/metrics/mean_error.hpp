// Metrics that measure how far outputs are from their targets: names and rules.
#pragma once

#include "metrics/metric_traits.hpp"

#include <lockstep/metrics/metrics.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>

namespace lockstep {

/// Adds the mean over the outputs, so that the mean over the examples is Keras' mean over all elements.
struct AbsoluteErrorRule {
  static constexpr std::size_t num_sums = 1;

  template <typename Index, typename Target>
  LOCKSTEP_HOST_DEVICE void operator()(const float* output, Index count, const Target& target, double* sums) const {
    float sum = 0;
    for (Index k = 0; k < count; ++k) sum += std::abs(target(k) - output[k]);
    sums[0] += sum / static_cast<float>(count);
  }
};

struct SquaredErrorMetricRule {
  static constexpr std::size_t num_sums = 1;

  template <typename Index, typename Target>
  LOCKSTEP_HOST_DEVICE void operator()(const float* output, Index count, const Target& target, double* sums) const {
    float sum = 0;
    for (Index k = 0; k < count; ++k) {
      const float difference = target(k) - output[k];
      sum += difference * difference;
    }
    sums[0] += sum / static_cast<float>(count);
  }
};

/// What the mean errors have in common.
struct MeanErrorTraits : MeanOverExamples {
  static constexpr MetricTargets targets = MetricTargets::dense;
  static constexpr bool needs_class_vector = false;
  static constexpr bool is_upward = false;

  static void fields(auto& /*visit*/, auto& /*metric*/) {}
};

template <>
struct MetricTraits<metrics::MeanAbsoluteError> : MeanErrorTraits {
  static constexpr std::string_view class_name = "MeanAbsoluteError";
  static constexpr std::string_view name = "mean_absolute_error";
  static constexpr std::array<std::string_view, 2> aliases{"mae", "MAE"};

  static AbsoluteErrorRule rule(const metrics::MeanAbsoluteError& /*metric*/) { return {}; }
};

template <>
struct MetricTraits<metrics::MeanSquaredError> : MeanErrorTraits {
  static constexpr std::string_view class_name = "MeanSquaredError";
  static constexpr std::string_view name = "mean_squared_error";
  static constexpr std::array<std::string_view, 2> aliases{"mse", "MSE"};

  static SquaredErrorMetricRule rule(const metrics::MeanSquaredError& /*metric*/) { return {}; }
};

template <>
struct MetricTraits<metrics::RootMeanSquaredError> : MeanErrorTraits {
  static constexpr std::string_view class_name = "RootMeanSquaredError";
  static constexpr std::string_view name = "root_mean_squared_error";

  static SquaredErrorMetricRule rule(const metrics::RootMeanSquaredError& /*metric*/) { return {}; }
  static double value(std::span<const double> sums, double num_examples) { return std::sqrt(sums[0] / num_examples); }
};

}  // namespace lockstep
