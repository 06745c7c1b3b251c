// keras.metrics: what training reports beside the loss. y is the target of an example, p the model's output for it.
// `name` is what logs call a metric; empty: Keras' automatic name, such as "mean_squared_error".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

/// In a namespace of their own because losses share some of their names, as in Keras.
namespace metrics {

/// The fraction of examples whose largest output is that of the target: of its class, or of its largest element. With
/// one output: the fraction above 0.5 where the target is 1, and not above it where it is 0. Keras' string "accuracy".
struct Accuracy {
  std::string name = {};
  friend bool operator==(const Accuracy&, const Accuracy&) = default;
};

/// The fraction of examples whose target's class is among the k largest outputs; equal outputs count as hits. As in
/// TensorFlow, an example with an output that is not finite counts as wrong.
struct TopKCategoricalAccuracy {
  int k = 5;
  std::string name = {};
  friend bool operator==(const TopKCategoricalAccuracy&, const TopKCategoricalAccuracy&) = default;
};

/// The same where targets are class indices.
struct SparseTopKCategoricalAccuracy {
  int k = 5;
  std::string name = {};
  friend bool operator==(const SparseTopKCategoricalAccuracy&, const SparseTopKCategoricalAccuracy&) = default;
};

/// The fraction of outputs that are above the threshold where the target is 1, and not above it where it is 0.
struct BinaryAccuracy {
  double threshold = 0.5;
  std::string name = {};
  friend bool operator==(const BinaryAccuracy&, const BinaryAccuracy&) = default;
};

/// The fraction of examples whose largest output is that of the target's largest element.
struct CategoricalAccuracy {
  std::string name = {};
  friend bool operator==(const CategoricalAccuracy&, const CategoricalAccuracy&) = default;
};

/// The fraction of examples whose largest output is that of the target, a class index.
struct SparseCategoricalAccuracy {
  std::string name = {};
  friend bool operator==(const SparseCategoricalAccuracy&, const SparseCategoricalAccuracy&) = default;
};

/// The mean of |y - p|.
struct MeanAbsoluteError {
  std::string name = {};
  friend bool operator==(const MeanAbsoluteError&, const MeanAbsoluteError&) = default;
};

/// The mean of (y - p)^2.
struct MeanSquaredError {
  std::string name = {};
  friend bool operator==(const MeanSquaredError&, const MeanSquaredError&) = default;
};

/// The square root of the mean of (y - p)^2.
struct RootMeanSquaredError {
  std::string name = {};
  friend bool operator==(const RootMeanSquaredError&, const RootMeanSquaredError&) = default;
};

/// The mean of the loss of this name.
struct MeanAbsolutePercentageError {
  std::string name = {};
  friend bool operator==(const MeanAbsolutePercentageError&, const MeanAbsolutePercentageError&) = default;
};

/// The mean of the loss of this name.
struct MeanSquaredLogarithmicError {
  std::string name = {};
  friend bool operator==(const MeanSquaredLogarithmicError&, const MeanSquaredLogarithmicError&) = default;
};

/// The mean of the loss LogCosh.
struct LogCoshError {
  std::string name = {};
  friend bool operator==(const LogCoshError&, const LogCoshError&) = default;
};

/// The mean of the loss of this name.
struct KLDivergence {
  std::string name = {};
  friend bool operator==(const KLDivergence&, const KLDivergence&) = default;
};

/// The mean of the loss of this name.
struct Poisson {
  std::string name = {};
  friend bool operator==(const Poisson&, const Poisson&) = default;
};

/// The mean of the loss of this name.
struct Hinge {
  std::string name = {};
  friend bool operator==(const Hinge&, const Hinge&) = default;
};

/// The mean of the loss of this name.
struct SquaredHinge {
  std::string name = {};
  friend bool operator==(const SquaredHinge&, const SquaredHinge&) = default;
};

/// The mean of the loss of this name.
struct CategoricalHinge {
  std::string name = {};
  friend bool operator==(const CategoricalHinge&, const CategoricalHinge&) = default;
};

/// The mean of the cosine of the angle between y and p: minus the loss of this name.
struct CosineSimilarity {
  std::string name = {};
  friend bool operator==(const CosineSimilarity&, const CosineSimilarity&) = default;
};

/// The mean of the loss of this name.
struct BinaryCrossentropy {
  bool from_logits = false;
  double label_smoothing = 0;
  std::string name = {};
  friend bool operator==(const BinaryCrossentropy&, const BinaryCrossentropy&) = default;
};

/// The mean of the loss of this name.
struct CategoricalCrossentropy {
  bool from_logits = false;
  double label_smoothing = 0;
  std::string name = {};
  friend bool operator==(const CategoricalCrossentropy&, const CategoricalCrossentropy&) = default;
};

/// The mean of the loss of this name.
struct SparseCategoricalCrossentropy {
  bool from_logits = false;
  std::string name = {};
  bool clips_probabilities = false;  ///< see the loss
  friend bool operator==(const SparseCategoricalCrossentropy&, const SparseCategoricalCrossentropy&) = default;
};

/// True positives over predicted positives. An output above the threshold predicts a positive, which is a target that
/// is not 0.
struct Precision {
  double thresholds = 0.5;  ///< Keras' name; one number
  std::string name = {};
  friend bool operator==(const Precision&, const Precision&) = default;
};

/// True positives over all positives, with the same threshold.
struct Recall {
  double thresholds = 0.5;  ///< Keras' name; one number
  std::string name = {};
  friend bool operator==(const Recall&, const Recall&) = default;
};

/// How many outputs are above the threshold where the target is not 0.
struct TruePositives {
  double thresholds = 0.5;  ///< Keras' name; one number
  std::string name = {};
  friend bool operator==(const TruePositives&, const TruePositives&) = default;
};

/// How many outputs are not above the threshold where the target is 0.
struct TrueNegatives {
  double thresholds = 0.5;  ///< Keras' name; one number
  std::string name = {};
  friend bool operator==(const TrueNegatives&, const TrueNegatives&) = default;
};

/// How many outputs are above the threshold where the target is 0.
struct FalsePositives {
  double thresholds = 0.5;  ///< Keras' name; one number
  std::string name = {};
  friend bool operator==(const FalsePositives&, const FalsePositives&) = default;
};

/// How many outputs are not above the threshold where the target is not 0.
struct FalseNegatives {
  double thresholds = 0.5;  ///< Keras' name; one number
  std::string name = {};
  friend bool operator==(const FalseNegatives&, const FalseNegatives&) = default;
};

/// What AUC is the area under: true positive rate over false positive rate, or precision over recall.
enum class Curve : std::uint8_t { ROC, PR };
/// How AUC integrates between two thresholds: by interpolation, or with the larger or the smaller of the two heights.
enum class Summation : std::uint8_t { interpolation, majoring, minoring };

/// The area under a curve over all outputs, at `num_thresholds` evenly spaced thresholds in [0, 1].
struct AUC {
  int num_thresholds = 200;
  Curve curve = Curve::ROC;
  Summation summation_method = Summation::interpolation;
  bool from_logits = false;
  std::string name = {};
  friend bool operator==(const AUC&, const AUC&) = default;
};

/// How F1Score averages over classes: `micro` counts all classes together, `macro` is the mean of their scores,
/// `weighted` weighs the scores by the classes' targets.
enum class Average : std::uint8_t { micro, macro, weighted };

/// The harmonic mean of precision and recall. Without a threshold the largest output is the predicted positive.
struct F1Score {
  Average average = Average::macro;
  std::optional<double> threshold = {};
  int classes = 0;  ///< set when a model is compiled
  std::string name = {};
  friend bool operator==(const F1Score&, const F1Score&) = default;
};

/// The same with recall weighing beta times as much as precision.
struct FBetaScore {
  Average average = Average::macro;
  double beta = 1;
  std::optional<double> threshold = {};
  int classes = 0;  ///< set when a model is compiled
  std::string name = {};
  friend bool operator==(const FBetaScore&, const FBetaScore&) = default;
};

/// The mean over `num_classes` classes of intersection over union: of a class, the examples (or pixels) that are of it
/// and whose largest output is its, over those that are one or the other. Targets are class indices. Classes that do
/// not occur do not count. Keras' option sparse_y_pred is false.
struct MeanIoU {
  int num_classes = 0;  ///< required
  std::string name = {};
  friend bool operator==(const MeanIoU&, const MeanIoU&) = default;
};

/// The same where targets are one-hot vectors.
struct OneHotMeanIoU {
  int num_classes = 0;  ///< required
  std::string name = {};
  friend bool operator==(const OneHotMeanIoU&, const OneHotMeanIoU&) = default;
};

/// The same mean over some of the classes. Targets are class indices.
struct IoU {
  int num_classes = 0;                     ///< required
  std::vector<int> target_class_ids = {};  ///< required
  std::string name = {};
  friend bool operator==(const IoU&, const IoU&) = default;
};

/// The same where targets are one-hot vectors.
struct OneHotIoU {
  int num_classes = 0;                     ///< required
  std::vector<int> target_class_ids = {};  ///< required
  std::string name = {};
  friend bool operator==(const OneHotIoU&, const OneHotIoU&) = default;
};

/// The same of outputs that are each of class 1 if they reach the threshold, and of class 0 otherwise.
struct BinaryIoU {
  std::vector<int> target_class_ids = {0, 1};
  double threshold = 0.5;
  std::string name = {};
  friend bool operator==(const BinaryIoU&, const BinaryIoU&) = default;
};

}  // namespace metrics

using MetricVariant = std::variant<
    metrics::Accuracy, metrics::BinaryAccuracy, metrics::CategoricalAccuracy, metrics::SparseCategoricalAccuracy,
    metrics::TopKCategoricalAccuracy, metrics::SparseTopKCategoricalAccuracy, metrics::MeanAbsoluteError,
    metrics::MeanSquaredError, metrics::RootMeanSquaredError, metrics::MeanAbsolutePercentageError,
    metrics::MeanSquaredLogarithmicError, metrics::LogCoshError, metrics::CosineSimilarity, metrics::KLDivergence,
    metrics::Poisson, metrics::BinaryCrossentropy, metrics::CategoricalCrossentropy,
    metrics::SparseCategoricalCrossentropy, metrics::Hinge, metrics::SquaredHinge, metrics::CategoricalHinge,
    metrics::Precision, metrics::Recall, metrics::TruePositives, metrics::TrueNegatives, metrics::FalsePositives,
    metrics::FalseNegatives, metrics::AUC, metrics::F1Score, metrics::FBetaScore, metrics::MeanIoU,
    metrics::OneHotMeanIoU, metrics::IoU, metrics::OneHotIoU, metrics::BinaryIoU>;

/// One of the metrics: a std::variant for std::visit and std::get. Its special members are not inline, as Layer's.
struct Metric : MetricVariant {
  using MetricVariant::variant;
  using MetricVariant::operator=;
  Metric(const Metric&);
  Metric(Metric&&) noexcept;
  Metric& operator=(const Metric&);
  Metric& operator=(Metric&&) noexcept;
  ~Metric();
};

/// metrics::Accuracy(). A reference: nvcc 13 does not compile such an object in a header.
[[nodiscard]] const Metric& default_accuracy() noexcept;
inline const Metric& accuracy = default_accuracy();

/// What files and logs call the metric: the name that it was given, or Keras' automatic one, such as "accuracy". Valid
/// as long as the metric.
[[nodiscard]] std::string_view keras_name(const Metric& metric) noexcept;

}  // namespace lockstep
