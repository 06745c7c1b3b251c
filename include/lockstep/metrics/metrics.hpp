// keras.metrics: what training reports beside the loss. y is the target of an example, p the model's output for it.
#pragma once

#include <string_view>
#include <variant>

namespace lockstep {

/// In a namespace of their own because losses share some of their names, as in Keras.
namespace metrics {

/// The share of examples whose largest output is that of the target: of its class, or of its largest element.
struct Accuracy {
  friend bool operator==(const Accuracy&, const Accuracy&) = default;
};

/// The share of examples for which fewer than k outputs exceed that of the target's largest element. As in TensorFlow,
/// an example with an output that is not finite counts as wrong.
struct TopKCategoricalAccuracy {
  int k = 5;
  friend bool operator==(const TopKCategoricalAccuracy&, const TopKCategoricalAccuracy&) = default;
};

/// The same where targets are class indices.
struct SparseTopKCategoricalAccuracy {
  int k = 5;
  friend bool operator==(const SparseTopKCategoricalAccuracy&, const SparseTopKCategoricalAccuracy&) = default;
};

/// The mean of |y - p|.
struct MeanAbsoluteError {
  friend bool operator==(const MeanAbsoluteError&, const MeanAbsoluteError&) = default;
};

/// The mean of (y - p)^2.
struct MeanSquaredError {
  friend bool operator==(const MeanSquaredError&, const MeanSquaredError&) = default;
};

/// The square root of the mean of (y - p)^2.
struct RootMeanSquaredError {
  friend bool operator==(const RootMeanSquaredError&, const RootMeanSquaredError&) = default;
};

}  // namespace metrics

using Metric = std::variant<metrics::Accuracy, metrics::TopKCategoricalAccuracy, metrics::SparseTopKCategoricalAccuracy,
                            metrics::MeanAbsoluteError, metrics::MeanSquaredError, metrics::RootMeanSquaredError>;

inline constexpr Metric accuracy = metrics::Accuracy();

/// "accuracy", "mean_absolute_error", ...: the metric's name in Keras' files and logs.
[[nodiscard]] std::string_view keras_name(const Metric& metric) noexcept;

}  // namespace lockstep
