// The reference's activation functions, standalone or as part of a Dense or Conv2D. Derivatives are computed from the
// input.
#pragma once

#include "support/reference_layers.hpp"

#include <lockstep/layers/activation.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <utility>

namespace lockstep::reference {

inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// A function's value and derivative at one point.
struct Point {
  double value = 0;
  double slope = 0;
};

inline double logistic(double z) { return 1 / (1 + std::exp(-z)); }

inline Point activate(const ActivationFunction& function, double z) {
  using Kind = ActivationFunction::Kind;
  const double p = function.parameter;
  const auto exponential_below = [z](double alpha) {
    return z > 0 ? Point{z, 1} : Point{alpha * (std::exp(z) - 1), alpha * std::exp(z)};
  };
  const auto clipped = [z](double low, double high) {
    return Point{std::clamp(z, low, high), z > low && z < high ? 1.0 : 0.0};
  };
  switch (function.kind) {
    case Kind::relu: return z > 0 ? Point{z, 1} : Point{0, 0};
    case Kind::sigmoid: return {logistic(z), logistic(z) * logistic(-z)};
    case Kind::tanh: return {std::tanh(z), 1 / std::cosh(z) / std::cosh(z)};
    case Kind::relu6: return clipped(0, 6);
    case Kind::leaky_relu: return z > 0 ? Point{z, 1} : Point{p * z, p};
    case Kind::elu: return exponential_below(p);
    case Kind::celu: return exponential_below(1);
    case Kind::selu: {
      constexpr double scale = 1.0507009873554805;
      const Point elu = exponential_below(1.6732632423543772);
      return {scale * elu.value, scale * elu.slope};
    }
    case Kind::gelu: {
      const double cumulative = std::erfc(-z / std::numbers::sqrt2) / 2;
      return {z * cumulative, cumulative + z * std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi)};
    }
    case Kind::silu: return {z * logistic(z), logistic(z) + z * logistic(z) * logistic(-z)};
    case Kind::softplus: return {std::log(1 + std::exp(z)), logistic(z)};
    case Kind::softsign: return {z / (1 + std::abs(z)), 1 / (1 + std::abs(z)) / (1 + std::abs(z))};
    case Kind::hard_sigmoid: return {std::clamp(z + 3, 0.0, 6.0) / 6, std::abs(z) < 3 ? 1.0 / 6 : 0};
    case Kind::hard_silu:
      return {z * std::clamp(z + 3, 0.0, 6.0) / 6, std::clamp(z + 3, 0.0, 6.0) / 6 + (std::abs(z) < 3 ? z / 6 : 0)};
    case Kind::exponential: return {std::exp(z), std::exp(z)};
    case Kind::mish: {
      const double t = std::tanh(std::log(1 + std::exp(z)));
      return {z * t, t + z * (1 - t * t) * logistic(z)};
    }
    case Kind::hard_tanh: return clipped(-1, 1);
    case Kind::log_sigmoid: return {-std::log(1 + std::exp(-z)), logistic(-z)};
    case Kind::tanh_shrink: return {z - std::tanh(z), std::tanh(z) * std::tanh(z)};
    case Kind::hard_shrink: return std::abs(z) > 0.5 ? Point{z, 1} : Point{0, 0};
    case Kind::soft_shrink: return std::abs(z) > 0.5 ? Point{z - std::copysign(0.5, z), 1} : Point{0, 0};
    case Kind::squareplus: return {(z + std::hypot(z, 2)) / 2, (1 + z / std::hypot(z, 2)) / 2};
    case Kind::sparse_plus:
      return {z >= 1 ? z : std::pow(std::max(z + 1, 0.0), 2) / 4, std::clamp((z + 1) / 2, 0.0, 1.0)};
    case Kind::clipped_relu:
      if (z <= function.threshold) return {p * (z - function.threshold), p};
      return z < function.max_value ? Point{z, 1} : Point{function.max_value, 0};
    default: return {z, 1};
  }
}

/// An activation function over rows of `width` elements (the last axis).
class Activated {
 public:
  Activated(ActivationFunction function, std::int64_t width) : function_(function), width_(width) {}

  Values forward(Values z) {
    input_ = z;
    output_ = std::move(z);
    if (is_softmax()) {
      for (std::size_t row = 0; row < output_.size(); row += at(width_))
        softmax(std::span(output_).subspan(row, at(width_)));
    } else {
      for (double& value : output_) value = activate(function_, value).value;
    }
    if (!is_log()) return output_;
    Values logarithms = input_;
    for (std::size_t row = 0; row < logarithms.size(); row += at(width_)) {
      const std::span<double> values = std::span(logarithms).subspan(row, at(width_));
      const double largest = *std::max_element(values.begin(), values.end());
      double sum = 0;
      for (const double value : values) sum += std::exp(value - largest);
      for (double& value : values) value -= largest + std::log(sum);
    }
    return logarithms;
  }

  [[nodiscard]] Values backward(Values gradient) const {
    if (is_softmax()) {
      for (std::size_t row = 0; row < gradient.size(); row += at(width_)) {
        double dot = 0;
        for (std::size_t i = row; i < row + at(width_); ++i) dot += gradient[i] * (is_log() ? 1 : output_[i]);
        for (std::size_t i = row; i < row + at(width_); ++i) {
          gradient[i] = is_log() ? gradient[i] - output_[i] * dot : output_[i] * (gradient[i] - dot);
        }
      }
    } else {
      for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] *= activate(function_, input_[i]).slope;
    }
    return gradient;
  }

 private:
  [[nodiscard]] bool is_log() const { return function_ == activations::log_softmax; }
  [[nodiscard]] bool is_softmax() const { return function_ == ActivationFunction::softmax || is_log(); }

  static void softmax(std::span<double> row) {
    double largest = -std::numeric_limits<double>::infinity();
    for (const double value : row) largest = std::max(largest, value);
    double sum = 0;
    for (double& value : row) sum += value = std::exp(value - largest);
    for (double& value : row) value /= sum;
  }

  ActivationFunction function_;
  std::int64_t width_;
  Values input_;
  Values output_;  ///< of log_softmax: of softmax
};

}  // namespace lockstep::reference
