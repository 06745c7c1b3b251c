// Metrics that count the examples whose class the model predicts: names and rules.
#pragma once

#include "core/fields.hpp"
#include "metrics/metric_traits.hpp"

#include <lockstep/metrics/metrics.hpp>

#include <cmath>
#include <cstddef>
#include <string_view>

namespace lockstep {

/// As Keras chooses by the last axis of the output: BinaryAccuracy with its threshold for one output, else the accuracy
/// of the class.
struct AccuracyRule {
  static constexpr std::size_t max_sums = 1;
  static constexpr float threshold = 0.5F;

  template <typename Index, typename Target>
  LOCKSTEP_HOST_DEVICE void operator()(const float* output, Index count, const Target& target, float weight,
                                       double* sums) const {
    const bool is_correct = count == 1 ? (output[0] > threshold ? 1.0F : 0.0F) == only_value(target)
                                       : argmax(output, count) == class_of(target, count);
    sums[0] += is_correct ? weight : 0.0F;
  }
};

struct TopKRule {
  static constexpr std::size_t max_sums = 1;

  int k;

  template <typename Index, typename Target>
  LOCKSTEP_HOST_DEVICE void operator()(const float* output, Index count, const Target& target, float weight,
                                       double* sums) const {
    const float expected = output[class_of(target, count)];
    int larger = 0;
    bool is_finite = true;
    for (Index i = 0; i < count; ++i) {
      larger += expected < output[i] ? 1 : 0;
      is_finite = is_finite && std::isfinite(output[i]);
    }
    sums[0] += is_finite && larger < k ? weight : 0.0F;
  }
};

struct BinaryAccuracyRule {
  static constexpr std::size_t max_sums = 1;

  float threshold;

  template <typename Index, typename Target>
  LOCKSTEP_HOST_DEVICE void operator()(const float* output, Index count, const Target& target, float weight,
                                       double* sums) const {
    float correct = 0;
    for (Index k = 0; k < count; ++k) correct += (output[k] > threshold ? 1.0F : 0.0F) == target(k) ? 1.0F : 0.0F;
    sums[0] += weight * (correct / static_cast<float>(count));
  }
};

struct ClassAccuracyRule {
  static constexpr std::size_t max_sums = 1;

  template <typename Index, typename Target>
  LOCKSTEP_HOST_DEVICE void operator()(const float* output, Index count, const Target& target, float weight,
                                       double* sums) const {
    sums[0] += argmax(output, count) == class_of(target, count) ? weight : 0.0F;
  }
};

template <>
struct MetricTraits<metrics::BinaryAccuracy> : MeanOverExamples {
  static constexpr std::string_view class_name = "BinaryAccuracy";
  static constexpr std::string_view name = "binary_accuracy";
  static constexpr bool is_function = true;
  static constexpr MetricTargets targets = MetricTargets::dense;
  static constexpr bool is_per_vector = false;
  static constexpr bool is_upward = true;

  static void fields(auto& visit, auto& metric) { visit.optional("threshold", metric.threshold, any_number); }

  static BinaryAccuracyRule rule(const metrics::BinaryAccuracy& metric) {
    return {.threshold = static_cast<float>(metric.threshold)};
  }
};

/// The traits that the accuracies of classes share.
struct ClassAccuracyTraits : MeanOverExamples {
  static constexpr bool is_per_vector = true;
  static constexpr bool is_upward = true;

  static void fields(auto& /*visit*/, auto& /*metric*/) {}

  static ClassAccuracyRule rule(const auto& /*metric*/) { return {}; }
};

template <>
struct MetricTraits<metrics::CategoricalAccuracy> : ClassAccuracyTraits {
  static constexpr std::string_view class_name = "CategoricalAccuracy";
  static constexpr std::string_view name = "categorical_accuracy";
  static constexpr bool is_function = true;
  static constexpr MetricTargets targets = MetricTargets::dense;
};

template <>
struct MetricTraits<metrics::SparseCategoricalAccuracy> : ClassAccuracyTraits {
  static constexpr std::string_view class_name = "SparseCategoricalAccuracy";
  static constexpr std::string_view name = "sparse_categorical_accuracy";
  static constexpr bool is_function = true;
  static constexpr MetricTargets targets = MetricTargets::classes;
};

template <>
struct MetricTraits<metrics::Accuracy> : MeanOverExamples {
  static constexpr std::string_view class_name = "Accuracy";
  static constexpr std::string_view name = "accuracy";
  static constexpr bool is_function = true;
  static constexpr std::array<std::string_view, 1> aliases{"acc"};
  static constexpr MetricTargets targets = MetricTargets::any;
  static constexpr bool is_per_vector = true;
  static constexpr bool is_upward = true;

  static void fields(auto& /*visit*/, auto& /*metric*/) {}

  static AccuracyRule rule(const metrics::Accuracy& /*metric*/) { return {}; }
};

/// What the metrics among the k largest outputs have in common.
struct TopKTraits : MeanOverExamples {
  static constexpr bool is_per_vector = true;
  static constexpr bool is_upward = true;

  static void fields(auto& visit, auto& metric) { visit.optional("k", metric.k, at_least_one); }

  template <typename Metric>
  static TopKRule rule(const Metric& metric) {
    return {.k = metric.k};
  }
};

template <>
struct MetricTraits<metrics::TopKCategoricalAccuracy> : TopKTraits {
  static constexpr std::string_view class_name = "TopKCategoricalAccuracy";
  static constexpr std::string_view name = "top_k_categorical_accuracy";
  static constexpr bool is_function = true;
  static constexpr MetricTargets targets = MetricTargets::dense;
};

template <>
struct MetricTraits<metrics::SparseTopKCategoricalAccuracy> : TopKTraits {
  static constexpr std::string_view class_name = "SparseTopKCategoricalAccuracy";
  static constexpr std::string_view name = "sparse_top_k_categorical_accuracy";
  static constexpr bool is_function = true;
  static constexpr MetricTargets targets = MetricTargets::classes;
};

}  // namespace lockstep
