// What a file of a metric declares. Everything that differs between metrics is a member of MetricTraits<T>; a missing
// one does not compile, so that no other code names a metric.
#pragma once

#include "core/host_device.hpp"
#include "losses/loss_traits.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

/// The targets that a metric is defined for.
enum class MetricTargets { any, classes, dense };

/// For each metric:
///   class_name          Keras' class
///   name                Keras' name of the object, which logs and files have
///   is_function         whether Keras has a function of this name that computes the metric; else such a function in a
///                       file is the user's
///   aliases             Keras' short names, which --metrics takes too
///   fields              Keras' keys except name and dtype (see core/fields.hpp)
///   targets             the MetricTargets that it is defined for
///   is_per_vector       whether the rule reads one vector at a time, along the output's last axis; other rules read
///   all
///                       outputs of an example
///   is_upward           whether a larger value is a better one
///   rule                the MetricRule of a metric
///   complete            complete(metric, outputs) sets what depends on the model
///   num_sums            the number of a metric's sums, once it is complete
///   value               the metric as value(metric, sums, total), where the examples' weights add up to `total`, of
///                       either sign or 0
/// Optional:
///   is_class_in_files   Keras does not know the metric by its name
///   needs_one_vector    the output must be one vector for each example
///   needs_options       Lockstep does not know the metric without options
///   counts_whole_numbers  Keras sums it in integers, to which it would cut the weights of examples
///
/// A rule declares `max_sums`, the most sums that a GPU keeps. Both backends call it as rule(output, count, target,
/// weight, sums): `count` outputs, those of an example or of one of its vectors, target(k) of output k, the example's
/// weight (1 unless the metric is weighted), and the sums to which it adds. The sums of an example are the mean over
/// its vectors. Because sums add up, a metric is the same for any number of ranks and batches. A rule is compiled for
/// targets of both kinds and called for `targets`.
template <typename Metric>
struct MetricTraits;

/// Keras' division: x / 0 is 0.
[[nodiscard]] inline double divide_no_nan(double x, double y) noexcept { return y == 0 ? 0 : x / y; }

/// A metric whose weighted sum over the examples is divided by the sum of their weights.
struct MeanOverExamples {
  static constexpr std::array<std::string_view, 0> aliases{};
  static void complete(auto& /*metric*/, std::int64_t /*outputs*/) {}
  static std::size_t num_sums(const auto& /*metric*/) { return 1; }
  static double value(const auto& /*metric*/, std::span<const double> sums, double total) {
    return divide_no_nan(sums[0], total);
  }
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
