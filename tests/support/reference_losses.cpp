// See reference_losses.hpp. Formulas are written once, for numbers that carry their derivative by one output, and are
// evaluated once for each output.
#include "support/reference_losses.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <type_traits>
#include <variant>

namespace lockstep::reference {
namespace {

constexpr double least = 1e-7;

/// A number with its derivative.
struct Dual {
  double v = 0;
  double d = 0;
  Dual(double value = 0, double derivative = 0) : v(value), d(derivative) {}  // NOLINT(google-explicit-constructor)
};

Dual operator+(Dual a, Dual b) { return {a.v + b.v, a.d + b.d}; }
Dual operator-(Dual a, Dual b) { return {a.v - b.v, a.d - b.d}; }
Dual operator-(Dual a) { return {-a.v, -a.d}; }
Dual operator*(Dual a, Dual b) { return {a.v * b.v, a.d * b.v + a.v * b.d}; }
Dual operator/(Dual a, Dual b) { return {a.v / b.v, (a.d * b.v - a.v * b.d) / (b.v * b.v)}; }
Dual log(Dual a) { return {std::log(a.v), a.d / a.v}; }
Dual exp(Dual a) { return {std::exp(a.v), a.d * std::exp(a.v)}; }
Dual sqrt(Dual a) { return {std::sqrt(a.v), a.d / (2 * std::sqrt(a.v))}; }
Dual abs(Dual a) { return a.v < 0 ? -a : a; }
Dual pow(Dual a, double n) { return {std::pow(a.v, n), n == 0 ? 0 : a.d * n * std::pow(a.v, n - 1)}; }
Dual larger(Dual a, Dual b) { return a.v < b.v ? b : a; }
/// The derivative of a clipped number is 0.
Dual clip(Dual a, double low, double high) { return a.v < low ? low : a.v > high ? high : a; }
Dual sigmoid(Dual a) { return 1 / (1 + exp(-a)); }

using Outputs = std::vector<Dual>;
using Target = std::span<const double>;

template <typename Term>
Dual mean(const Outputs& p, const Term& term) {
  Dual sum;
  for (std::size_t i = 0; i < p.size(); ++i) sum = sum + term(i);
  return sum / static_cast<double>(p.size());
}

Dual clip(Dual p) { return clip(p, least, 1 - least); }

Dual binary(Dual p, double y) { return -(y * log(p) + (1 - y) * log(1 - p)); }

double sign_of(double y) { return y == 0 ? -1 : y; }

Outputs normalized(const Outputs& z, bool from_logits) {
  Outputs p = z;
  if (from_logits) std::ranges::transform(p, p.begin(), [](Dual one) { return exp(one); });
  const Dual sum = std::accumulate(p.begin(), p.end(), Dual());
  for (Dual& one : p) one = one / sum;
  return p;
}

struct Formula {
  const Outputs& p;
  Target y;
  ActivationFunction activation;

  Dual operator()(const SparseCategoricalCrossentropy& loss) const {
    const auto is_class = [&](std::size_t k) { return static_cast<double>(k) == y[0] ? 1.0 : 0.0; };
    if (activation == ActivationFunction::softmax) return of_probabilities(p, is_class);
    if (loss.from_logits) return of_logits(is_class);
    Outputs clipped = p;
    for (Dual& one : clipped) one = clip(one);
    return of_probabilities(normalized(clipped, false), is_class);
  }
  Dual operator()(const CategoricalCrossentropy& loss) const {
    const auto smoothed = [&](std::size_t k) { return spread(k, loss.label_smoothing); };
    if (activation == ActivationFunction::softmax) return of_probabilities(p, smoothed);
    if (loss.from_logits) return of_logits(smoothed);
    Outputs q = normalized(p, false);
    for (Dual& one : q) one = clip(one);
    return of_probabilities(q, smoothed);
  }
  Dual operator()(const CategoricalFocalCrossentropy& loss) const {
    Dual sum;
    const Outputs q = normalized(p, loss.from_logits);
    for (std::size_t k = 0; k < p.size(); ++k) {
      const Dual clipped = clip(q[k]);
      sum = sum - loss.alpha * pow(1 - clipped, loss.gamma) * spread(k, loss.label_smoothing) * log(clipped);
    }
    return sum;
  }
  Dual operator()(const BinaryCrossentropy& loss) const {
    return mean(p, [&](std::size_t k) {
      const double target = y[k] * (1 - loss.label_smoothing) + loss.label_smoothing / 2;
      if (activation == ActivationFunction::sigmoid) return binary(p[k], target);
      // -y log(s) - (1 - y) log(1 - s) of the sigmoid s.
      if (loss.from_logits) return (1 - target) * p[k] + log(1 + exp(-p[k]));
      return binary(clip(p[k]), target);
    });
  }
  Dual operator()(const BinaryFocalCrossentropy& loss) const {
    return mean(p, [&](std::size_t k) {
      const double target = y[k] * (1 - loss.label_smoothing) + loss.label_smoothing / 2;
      const Dual yes = loss.from_logits ? sigmoid(p[k]) : p[k];
      const Dual right = target * yes + (1 - target) * (1 - yes);
      const double weight = loss.apply_class_balancing ? target * loss.alpha + (1 - target) * (1 - loss.alpha) : 1;
      return weight * pow(1 - right, loss.gamma) * binary(clip(yes), target);
    });
  }
  Dual operator()(const MeanSquaredError&) const {
    return mean(p, [&](std::size_t k) { return (p[k] - y[k]) * (p[k] - y[k]); });
  }
  Dual operator()(const MeanAbsoluteError&) const {
    return mean(p, [&](std::size_t k) { return abs(p[k] - y[k]); });
  }
  Dual operator()(const MeanAbsolutePercentageError&) const {
    return mean(p, [&](std::size_t k) { return 100 * abs(p[k] - y[k]) / std::max(std::abs(y[k]), least); });
  }
  Dual operator()(const MeanSquaredLogarithmicError&) const {
    return mean(p, [&](std::size_t k) {
      const Dual difference = log(1 + larger(p[k], least)) - std::log(1 + std::max(y[k], least));
      return difference * difference;
    });
  }
  Dual operator()(const Huber& loss) const {
    return mean(p, [&](std::size_t k) {
      const Dual error = abs(p[k] - y[k]);
      return error.v <= loss.delta ? error * error / 2 : loss.delta * error - loss.delta * loss.delta / 2;
    });
  }
  Dual operator()(const LogCosh&) const {
    return mean(p, [&](std::size_t k) { return log((exp(p[k] - y[k]) + exp(y[k] - p[k])) / 2); });
  }
  Dual operator()(const CosineSimilarity&) const {
    Dual dot;
    Dual of_outputs;
    double of_targets = 0;
    for (std::size_t k = 0; k < p.size(); ++k) {
      dot = dot + p[k] * y[k];
      of_outputs = of_outputs + p[k] * p[k];
      of_targets += y[k] * y[k];
    }
    return -dot / (sqrt(of_outputs) * std::sqrt(of_targets));
  }
  Dual operator()(const KLDivergence&) const {
    Dual sum;
    for (std::size_t k = 0; k < p.size(); ++k) {
      const double target = std::clamp(y[k], least, 1.0);
      sum = sum + target * (std::log(target) - log(clip(p[k], least, 1)));
    }
    return sum;
  }
  Dual operator()(const Poisson&) const {
    return mean(p, [&](std::size_t k) { return p[k] - y[k] * log(p[k] + least); });
  }
  Dual operator()(const Hinge&) const {
    return mean(p, [&](std::size_t k) { return larger(1 - sign_of(y[k]) * p[k], 0); });
  }
  Dual operator()(const SquaredHinge&) const {
    return mean(p, [&](std::size_t k) {
      const Dual missing = larger(1 - sign_of(y[k]) * p[k], 0);
      return missing * missing;
    });
  }
  Dual operator()(const CategoricalHinge&) const {
    Dual of_class;
    Dual rival = (1 - y[0]) * p[0];
    for (std::size_t k = 0; k < p.size(); ++k) {
      of_class = of_class + y[k] * p[k];
      rival = larger(rival, (1 - y[k]) * p[k]);
    }
    return larger(1 + rival - of_class, 0);
  }

 private:
  [[nodiscard]] double spread(std::size_t k, double smoothing) const {
    return y[k] * (1 - smoothing) + smoothing / static_cast<double>(p.size());
  }

  template <typename Distribution>
  [[nodiscard]] static Dual of_probabilities(const Outputs& q, const Distribution& distribution) {
    Dual sum;
    for (std::size_t k = 0; k < q.size(); ++k) sum = sum - distribution(k) * log(q[k]);
    return sum;
  }

  template <typename Distribution>
  [[nodiscard]] Dual of_logits(const Distribution& distribution) const {
    double largest = p[0].v;
    for (const Dual& one : p) largest = std::max(largest, one.v);
    Dual sum;
    Dual all;
    for (const Dual& one : p) all = all + exp(one - largest);
    for (std::size_t k = 0; k < p.size(); ++k) sum = sum + distribution(k) * (log(all) + largest - p[k]);
    return sum;
  }
};

}  // namespace

LossValue loss_of(const Loss& loss, std::span<const double> output, std::span<const double> target,
                  ActivationFunction activation) {
  LossValue value{.loss = 0, .gradient = std::vector<double>(output.size())};
  Outputs outputs(output.begin(), output.end());
  if (std::holds_alternative<MeanSquaredError>(loss)) {  // of images, whose number of outputs is large
    const auto count = static_cast<double>(output.size());
    for (std::size_t i = 0; i < output.size(); ++i) {
      value.loss += (output[i] - target[i]) * (output[i] - target[i]) / count;
      value.gradient[i] = 2 * (output[i] - target[i]) / count;
    }
    return value;
  }
  for (std::size_t i = 0; i < output.size(); ++i) {
    outputs[i].d = 1;
    const Dual found = std::visit(Formula{outputs, target, activation}, loss);
    outputs[i].d = 0;
    value.loss = found.v;
    value.gradient[i] = found.d;
  }
  return value;
}

ReducedScale scale_of(const Loss& loss, double global_batch, double total_weight) {
  const Reduction reduction = std::visit([](const auto& any) { return any.reduction; }, loss);
  if (reduction == Reduction::sum) return {.gradient = 1, .loss = global_batch};
  if (reduction == Reduction::mean_with_sample_weight)
    return {.gradient = 1 / total_weight, .loss = global_batch / total_weight};
  return {.gradient = 1 / global_batch, .loss = 1};
}

}  // namespace lockstep::reference
