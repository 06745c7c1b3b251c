// Metrics of the confusion matrix: fields and rules. An output above the threshold predicts a positive; a target that
// is not 0 is a positive.
#pragma once

#include "core/enum_names.hpp"
#include "core/fields.hpp"
#include "losses/binary_crossentropy.hpp"
#include "metrics/metric_traits.hpp"

#include <lockstep/metrics/metrics.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

template <>
struct EnumNames<metrics::Curve> {
  static constexpr std::array all{std::pair{metrics::Curve::ROC, "ROC"}, std::pair{metrics::Curve::PR, "PR"}};
};

template <>
struct EnumNames<metrics::Summation> {
  static constexpr std::array all{std::pair{metrics::Summation::interpolation, "interpolation"},
                                  std::pair{metrics::Summation::majoring, "majoring"},
                                  std::pair{metrics::Summation::minoring, "minoring"}};
};

template <>
struct EnumNames<metrics::Average> {
  static constexpr std::array all{std::pair{metrics::Average::micro, "micro"},
                                  std::pair{metrics::Average::macro, "macro"},
                                  std::pair{metrics::Average::weighted, "weighted"}};
};

/// Sums: true positives, then what they are divided by: predicted positives (precision) or positives (recall).
struct RatioRule {
  static constexpr std::size_t max_sums = 2;

  float threshold;
  bool over_positives;

  template <typename Index, typename Target>
  LOCKSTEP_HOST_DEVICE void operator()(const float* output, Index count, const Target& target, float weight,
                                       double* sums) const {
    for (Index k = 0; k < count; ++k) {
      const bool is_predicted = output[k] > threshold;
      const bool is_positive = target(k) != 0.0F;
      if (is_predicted && is_positive) sums[0] += weight;
      if (over_positives ? is_positive : is_predicted) sums[1] += weight;
    }
  }
};

/// The traits that these metrics share.
struct ConfusionTraits {
  static constexpr bool is_function = false;
  static constexpr std::array<std::string_view, 0> aliases{};
  static constexpr MetricTargets targets = MetricTargets::dense;
  static constexpr bool is_per_vector = false;
  static constexpr bool is_upward = true;
  static void complete(auto& /*metric*/, std::int64_t /*outputs*/) {}
};

enum class Denominator { predicted_positives, actual_positives };

/// The traits of Precision and Recall.
template <Denominator denominator>
struct RatioTraits : ConfusionTraits {
  static void fields(auto& visit, auto& metric) {
    visit.optional("thresholds", metric.thresholds, zero_to_one);
    visit.constant("top_k", nullptr);
    visit.constant("class_id", nullptr);
  }

  static RatioRule rule(const auto& metric) {
    return {.threshold = static_cast<float>(metric.thresholds),
            .over_positives = denominator == Denominator::actual_positives};
  }
  static std::size_t num_sums(const auto& /*metric*/) { return 2; }
  static double value(const auto& /*metric*/, std::span<const double> sums, double /*total*/) {
    return divide_no_nan(sums[0], sums[1]);
  }
};

template <>
struct MetricTraits<metrics::Precision> : RatioTraits<Denominator::predicted_positives> {
  static constexpr std::string_view class_name = "Precision";
  static constexpr std::string_view name = "precision";
};

template <>
struct MetricTraits<metrics::Recall> : RatioTraits<Denominator::actual_positives> {
  static constexpr std::string_view class_name = "Recall";
  static constexpr std::string_view name = "recall";
};

/// The sum: the outputs that are predicted and true so.
struct CountRule {
  static constexpr std::size_t max_sums = 1;

  float threshold;
  bool predicted;
  bool positive;

  template <typename Index, typename Target>
  LOCKSTEP_HOST_DEVICE void operator()(const float* output, Index count, const Target& target, float weight,
                                       double* sums) const {
    for (Index k = 0; k < count; ++k) {
      if ((output[k] > threshold) == predicted && (target(k) != 0.0F) == positive) sums[0] += weight;
    }
  }
};

template <bool predicted, bool positive>
struct CountTraits : ConfusionTraits {
  static constexpr bool is_upward = predicted == positive;

  static void fields(auto& visit, auto& metric) { visit.optional("thresholds", metric.thresholds, zero_to_one); }

  static CountRule rule(const auto& metric) {
    return {.threshold = static_cast<float>(metric.thresholds), .predicted = predicted, .positive = positive};
  }
  static std::size_t num_sums(const auto& /*metric*/) { return 1; }
  static double value(const auto& /*metric*/, std::span<const double> sums, double /*total*/) { return sums[0]; }
};

template <>
struct MetricTraits<metrics::TruePositives> : CountTraits<true, true> {
  static constexpr std::string_view class_name = "TruePositives";
  static constexpr std::string_view name = "true_positives";
};

template <>
struct MetricTraits<metrics::TrueNegatives> : CountTraits<false, false> {
  static constexpr std::string_view class_name = "TrueNegatives";
  static constexpr std::string_view name = "true_negatives";
};

template <>
struct MetricTraits<metrics::FalsePositives> : CountTraits<true, false> {
  static constexpr std::string_view class_name = "FalsePositives";
  static constexpr std::string_view name = "false_positives";
};

template <>
struct MetricTraits<metrics::FalseNegatives> : CountTraits<false, true> {
  static constexpr std::string_view class_name = "FalseNegatives";
  static constexpr std::string_view name = "false_negatives";
};

/// Sums: a histogram of the positives' outputs, then one of the negatives'. Bucket b counts the outputs that are above
/// thresholds 0 to b.
struct HistogramRule {
  static constexpr std::size_t max_sums = 1000;

  int thresholds;
  bool from_logits;

  template <typename Index, typename Target>
  LOCKSTEP_HOST_DEVICE void operator()(const float* output, Index count, const Target& target, float weight,
                                       double* sums) const {
    for (Index k = 0; k < count; ++k) {
      const float p = from_logits ? logistic(output[k]) : output[k];
      const float scaled = std::ceil(p * static_cast<float>(thresholds - 1)) - 1.0F;
      // Outputs beyond [0, 1], and NaN, go to the ends.
      const int bucket = !(scaled > 0.0F) ? 0 : p > 1.0F ? thresholds - 2 : static_cast<int>(scaled);
      const int first = target(k) != 0.0F ? 0 : thresholds;
      sums[first + bucket] += weight;
    }
  }
};

template <>
struct MetricTraits<metrics::AUC> : ConfusionTraits {
  static constexpr std::string_view class_name = "AUC";
  static constexpr std::string_view name = "auc";

  static void fields(auto& visit, auto& auc) {
    visit.optional("num_thresholds", auc.num_thresholds, Interval{.min = 2, .max = 1e6});
    visit.optional("curve", auc.curve);
    visit.optional("summation_method", auc.summation_method);
    visit.constant("multi_label", false);
    visit.constant("num_labels", nullptr);
    visit.constant("label_weights", nullptr);
    visit.optional("from_logits", auc.from_logits);
  }

  static HistogramRule rule(const metrics::AUC& auc) {
    return {.thresholds = auc.num_thresholds, .from_logits = auc.from_logits};
  }
  static std::size_t num_sums(const metrics::AUC& auc) { return 2 * static_cast<std::size_t>(auc.num_thresholds); }
  static double value(const metrics::AUC& auc, std::span<const double> sums, double total);
};

/// Sums for each class, or for all classes together: true positives, false positives, false negatives, targets.
struct ScoreRule {
  static constexpr std::size_t max_sums = 1000;

  bool has_threshold;
  float threshold;
  bool is_per_class;

  template <typename Index, typename Target>
  LOCKSTEP_HOST_DEVICE void operator()(const float* output, Index count, const Target& target, float weight,
                                       double* sums) const {
    constexpr float least_output = 1e-9F;
    const float largest = output[argmax(output, count)];
    for (Index k = 0; k < count; ++k) {
      const bool is_largest = output[k] >= largest && std::abs(output[k]) > least_output;
      const float predicted = (has_threshold ? output[k] > threshold : is_largest) ? 1.0F : 0.0F;
      const float y = target(k);
      double* const its = sums + (is_per_class ? 4 * k : 0);
      its[0] += weight * predicted * y;
      its[1] += weight * predicted * (1.0F - y);
      its[2] += weight * (1.0F - predicted) * y;
      its[3] += weight * y;
    }
  }
};

/// The score of the sums; beta is 1 for F1Score.
[[nodiscard]] double score_of(metrics::Average average, double beta, std::span<const double> sums);

/// The traits of F1Score and FBetaScore.
struct ScoreTraits : ConfusionTraits {
  static constexpr bool is_per_vector = true;
  static constexpr bool needs_one_vector = true;
  static constexpr bool needs_options = true;  // Keras' default gives a score for each class
  static constexpr bool is_class_in_files = true;

  static void fields(auto& visit, auto& score) {
    visit.required("average", score.average);
    visit.optional("threshold", score.threshold, Interval{.min = 0, .max = 1, .includes_min = false});
  }

  static void complete(auto& score, std::int64_t outputs) { score.classes = static_cast<int>(outputs); }

  static ScoreRule rule(const auto& score) {
    return {.has_threshold = score.threshold.has_value(),
            .threshold = static_cast<float>(score.threshold.value_or(0)),
            .is_per_class = score.average != metrics::Average::micro};
  }
  static std::size_t num_sums(const auto& score) {
    return 4 * (score.average == metrics::Average::micro ? 1 : static_cast<std::size_t>(score.classes));
  }
};

template <>
struct MetricTraits<metrics::F1Score> : ScoreTraits {
  static constexpr std::string_view class_name = "F1Score";
  static constexpr std::string_view name = "f1_score";

  static double value(const metrics::F1Score& score, std::span<const double> sums, double /*total*/) {
    return score_of(score.average, 1, sums);
  }
};

template <>
struct MetricTraits<metrics::FBetaScore> : ScoreTraits {
  static constexpr std::string_view class_name = "FBetaScore";
  static constexpr std::string_view name = "fbeta_score";

  static void fields(auto& visit, auto& score) {
    ScoreTraits::fields(visit, score);
    visit.optional("beta", score.beta,
                   Interval{.min = 0, .max = 1e18, .includes_min = false});  // its square is a float
  }
  static double value(const metrics::FBetaScore& score, std::span<const double> sums, double /*total*/) {
    return score_of(score.average, score.beta, sums);
  }
};

}  // namespace lockstep
