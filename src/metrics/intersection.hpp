// Intersection over union, the metrics of segmentation: fields and rules. For each class, the vectors that are of it
// and are predicted to be of it, over those that are one or the other. The value is the mean over the classes.
#pragma once

#include "core/fields.hpp"
#include "metrics/metric_traits.hpp"

#include <lockstep/metrics/metrics.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

/// Sums for each class: vectors of it that are predicted to be of it, vectors of it, vectors predicted to be of it.
struct IntersectionSums {
  static constexpr std::size_t per_class = 3;

  int classes;

  /// As Keras, leaves out what is of no class that counts.
  LOCKSTEP_HOST_DEVICE void add(int expected, int predicted, float weight, double* sums) const {
    if (expected < 0 || expected >= classes || predicted < 0 || predicted >= classes) return;
    if (expected == predicted) sums[per_class * expected] += weight;
    sums[per_class * expected + 1] += weight;
    sums[per_class * predicted + 2] += weight;
  }
};

struct IntersectionRule {
  static constexpr std::size_t max_sums = 1000;

  IntersectionSums of_classes;

  template <typename Index, typename Target>
  LOCKSTEP_HOST_DEVICE void operator()(const float* output, Index count, const Target& target, float weight,
                                       double* sums) const {
    of_classes.add(static_cast<int>(class_of(target, count)), static_cast<int>(argmax(output, count)), weight, sums);
  }
};

/// Each output is of class 0 or 1.
struct BinaryIntersectionRule {
  static constexpr std::size_t max_sums = 2 * IntersectionSums::per_class;

  float threshold;

  template <typename Index, typename Target>
  LOCKSTEP_HOST_DEVICE void operator()(const float* output, Index count, const Target& target, float weight,
                                       double* sums) const {
    constexpr IntersectionSums binary{.classes = 2};
    for (Index k = 0; k < count; ++k)
      binary.add(static_cast<int>(target(k)), output[k] >= threshold ? 1 : 0, weight, sums);
  }
};

/// The mean over the target classes that occur. `target_classes`: all if it is empty.
[[nodiscard]] double mean_intersection(std::span<const double> sums, std::span<const int> target_classes);

/// Throws UsageError unless all target classes are below `classes`.
void check_target_classes(std::span<const int> target_classes, int classes, std::string_view metric);

/// The traits that these metrics share.
struct IntersectionTraits {
  static constexpr bool is_function = false;
  static constexpr std::array<std::string_view, 0> aliases{};
  static constexpr bool is_per_vector = true;
  static constexpr bool is_upward = true;
  static constexpr bool is_class_in_files = true;
  static constexpr bool counts_whole_numbers = true;
  static void complete(auto& /*metric*/, std::int64_t /*outputs*/) {}
};

inline constexpr Interval at_least_one_class{.min = 1, .max = 1e5};

/// Those of the metrics of all classes.
struct MeanIntersectionTraits : IntersectionTraits {
  static constexpr bool needs_options = true;

  static void fields(auto& visit, auto& metric) {
    visit.required("num_classes", metric.num_classes, at_least_one_class);
    visit.constant("ignore_class", nullptr);
    visit.constant("sparse_y_pred", false);
    visit.expected("axis", -1);
  }
  static IntersectionRule rule(const auto& metric) { return {{.classes = metric.num_classes}}; }
  static std::size_t num_sums(const auto& metric) {
    return IntersectionSums::per_class * static_cast<std::size_t>(metric.num_classes);
  }
  static double value(const auto& /*metric*/, std::span<const double> sums, double /*total*/) {
    return mean_intersection(sums, {});
  }
};

/// Those of the metrics of some classes.
struct TargetIntersectionTraits : MeanIntersectionTraits {
  static void fields(auto& visit, auto& metric) {
    MeanIntersectionTraits::fields(visit, metric);
    visit.required("target_class_ids", metric.target_class_ids);
  }
  static void complete(auto& metric, std::int64_t /*outputs*/) {
    check_target_classes(metric.target_class_ids, metric.num_classes, keras_name(Metric(metric)));
  }
  static double value(const auto& metric, std::span<const double> sums, double /*total*/) {
    return mean_intersection(sums, metric.target_class_ids);
  }
};

template <>
struct MetricTraits<metrics::MeanIoU> : MeanIntersectionTraits {
  static constexpr std::string_view class_name = "MeanIoU";
  static constexpr std::string_view name = "mean_io_u";
  static constexpr MetricTargets targets = MetricTargets::classes;

  static void fields(auto& visit, auto& metric) {
    MeanIntersectionTraits::fields(visit, metric);
    visit.constant("sparse_y_true", true);
  }
};

template <>
struct MetricTraits<metrics::OneHotMeanIoU> : MeanIntersectionTraits {
  static constexpr std::string_view class_name = "OneHotMeanIoU";
  static constexpr std::string_view name = "one_hot_mean_io_u";
  static constexpr MetricTargets targets = MetricTargets::dense;
};

template <>
struct MetricTraits<metrics::IoU> : TargetIntersectionTraits {
  static constexpr std::string_view class_name = "IoU";
  static constexpr std::string_view name = "io_u";
  static constexpr MetricTargets targets = MetricTargets::classes;

  static void fields(auto& visit, auto& metric) {
    TargetIntersectionTraits::fields(visit, metric);
    visit.constant("sparse_y_true", true);
  }
};

template <>
struct MetricTraits<metrics::OneHotIoU> : TargetIntersectionTraits {
  static constexpr std::string_view class_name = "OneHotIoU";
  static constexpr std::string_view name = "one_hot_io_u";
  static constexpr MetricTargets targets = MetricTargets::dense;
};

template <>
struct MetricTraits<metrics::BinaryIoU> : IntersectionTraits {
  static constexpr std::string_view class_name = "BinaryIoU";
  static constexpr std::string_view name = "binary_io_u";
  static constexpr MetricTargets targets = MetricTargets::dense;
  static constexpr bool is_per_vector = false;

  static void fields(auto& visit, auto& metric) {
    visit.optional("target_class_ids", metric.target_class_ids);
    visit.optional("threshold", metric.threshold, any_number);
  }
  static void complete(auto& metric, std::int64_t /*outputs*/) {
    check_target_classes(metric.target_class_ids, 2, keras_name(Metric(metric)));
  }
  static BinaryIntersectionRule rule(const auto& metric) { return {.threshold = static_cast<float>(metric.threshold)}; }
  static std::size_t num_sums(const auto& /*metric*/) { return BinaryIntersectionRule::max_sums; }
  static double value(const auto& metric, std::span<const double> sums, double /*total*/) {
    return mean_intersection(sums, metric.target_class_ids);
  }
};

}  // namespace lockstep
