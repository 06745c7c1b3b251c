// See confusion.hpp. Computes AUC and F1Score from their sums, with Keras' formulas.
#include "metrics/confusion.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

/// True and false positives at each threshold.
struct Positives {
  std::vector<double> tp;
  std::vector<double> fp;
};

Positives positives_of(std::span<const double> sums) {
  const std::size_t thresholds = sums.size() / 2;
  Positives found{std::vector<double>(thresholds), std::vector<double>(thresholds)};
  double tp = 0;
  double fp = 0;
  for (std::size_t t = thresholds; t-- > 0;) {
    found.tp[t] = tp += sums[t];
    found.fp[t] = fp += sums[thresholds + t];
  }
  return found;
}

/// Between two thresholds, true positives grow linearly with all predicted positives (J. Davis and M. Goadrich, 2006).
double interpolated_precision(const Positives& found) {
  double area = 0;
  for (std::size_t t = 0; t + 1 < found.tp.size(); ++t) {
    const double before = found.tp[t] + found.fp[t];
    const double after = found.tp[t + 1] + found.fp[t + 1];
    const double gained = found.tp[t] - found.tp[t + 1];
    const double slope = divide_no_nan(gained, std::max(before - after, 0.0));
    const double intercept = found.tp[t + 1] - slope * after;
    const double ratio = before > 0 && after > 0 ? before / after : 1;
    area += divide_no_nan(slope * (gained + intercept * std::log(ratio)), std::max(found.tp.front(), 0.0));
  }
  return area;
}

}  // namespace

double MetricTraits<metrics::AUC>::value(const metrics::AUC& auc, std::span<const double> sums, double /*total*/) {
  const Positives found = positives_of(sums);
  const bool is_roc = auc.curve == metrics::Curve::ROC;
  if (!is_roc && auc.summation_method == metrics::Summation::interpolation) return interpolated_precision(found);
  const auto recall = [&](std::size_t t) { return divide_no_nan(found.tp[t], found.tp.front()); };
  const auto x = [&](std::size_t t) { return is_roc ? divide_no_nan(found.fp[t], found.fp.front()) : recall(t); };
  const auto y = [&](std::size_t t) {
    return is_roc ? recall(t) : divide_no_nan(found.tp[t], found.tp[t] + found.fp[t]);
  };
  double area = 0;
  for (std::size_t t = 0; t + 1 < found.tp.size(); ++t) {
    double height = (y(t) + y(t + 1)) / 2;
    if (auc.summation_method == metrics::Summation::majoring) height = std::max(y(t), y(t + 1));
    if (auc.summation_method == metrics::Summation::minoring) height = std::min(y(t), y(t + 1));
    area += (x(t) - x(t + 1)) * height;
  }
  return area;
}

double score_of(metrics::Average average, double beta, std::span<const double> sums) {
  constexpr double epsilon = 1e-7;
  double targets = 0;
  for (std::size_t at = 0; at < sums.size(); at += 4) targets += sums[at + 3];
  double mean = 0;
  for (std::size_t at = 0; at < sums.size(); at += 4) {
    const double precision = sums[at] / (sums[at] + sums[at + 1] + epsilon);
    const double recall = sums[at] / (sums[at] + sums[at + 2] + epsilon);
    const double its = (1 + beta * beta) * precision * recall / (beta * beta * precision + recall + epsilon);
    const bool weighs = average == metrics::Average::weighted;
    mean += its * (weighs ? sums[at + 3] / (targets + epsilon) : 4 / static_cast<double>(sums.size()));
  }
  return mean;
}

}  // namespace lockstep
