// What a file of a metric declares. Everything that differs between metrics is a member of MetricTraits<T>; a missing
// one does not compile, so that no other code names a metric.
#pragma once

#include "core/host_device.hpp"
#include "losses/loss_traits.hpp"

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace lockstep {

/// The targets that a metric is defined for.
enum class MetricTargets { any, classes, dense };

/// For each metric:
///   class_name          Keras' class
///   name                Keras' name of the object, which logs and files have
///   aliases             Keras' short names, which --metrics takes too
///   fields              Keras' keys except name and dtype (see core/fields.hpp)
///   targets             the MetricTargets that it is defined for
///   needs_class_vector  whether the output must be one vector of classes for each example
///   is_upward           whether a larger value is a better one
///   rule                the MetricRule of a metric
///   value               the metric as value(sums, num_examples) of at least one example
///
/// A rule declares `num_sums` and is called for one example, as rule(output, count, target, sums), by both backends:
/// `count` outputs, target(k) of output k, and the `num_sums` sums to which it adds. Because sums add up, a metric is
/// the same for any number of ranks and batches. A rule is compiled for targets of both kinds and called for `targets`.
template <typename Metric>
struct MetricTraits;

/// A metric whose sum over the examples is divided by their number.
struct MeanOverExamples {
  static constexpr std::array<std::string_view, 0> aliases{};
  static double value(std::span<const double> sums, double num_examples) { return sums[0] / num_examples; }
};

/// The first of equals; a NaN is never larger.
template <typename Index>
[[nodiscard]] LOCKSTEP_HOST_DEVICE Index argmax(const float* values, Index count) {
  Index best = 0;
  for (Index k = 1; k < count; ++k) {
    if (values[best] < values[k]) best = k;
  }
  return best;
}

/// The class that a target names: that of its largest element.
template <typename Index>
[[nodiscard]] LOCKSTEP_HOST_DEVICE Index class_of(const ClassTarget<Index>& target, Index /*count*/) {
  return target.expected;
}
template <typename Index>
[[nodiscard]] LOCKSTEP_HOST_DEVICE Index class_of(const DenseTarget<Index>& target, Index count) {
  return argmax(target.values, count);
}

/// What a target says of a model's only output.
template <typename Index>
[[nodiscard]] LOCKSTEP_HOST_DEVICE float only_value(const ClassTarget<Index>& target) {
  return static_cast<float>(target.expected);
}
template <typename Index>
[[nodiscard]] LOCKSTEP_HOST_DEVICE float only_value(const DenseTarget<Index>& target) {
  return target.values[0];
}

}  // namespace lockstep
