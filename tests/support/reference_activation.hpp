// The reference's activation functions, standalone or as part of a Dense or Conv2D.
#pragma once

#include "support/reference_layers.hpp"

#include <lockstep/layers/activation.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

namespace lockstep::reference {

inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// An activation function over rows of `width` elements (the last axis).
class Activated {
 public:
  Activated(ActivationFunction function, std::int64_t width) : function_(function), width_(width) {}

  Values forward(Values z) {
    output_ = std::move(z);
    if (function_ == ActivationFunction::softmax) {
      for (std::size_t row = 0; row < output_.size(); row += at(width_))
        softmax(std::span(output_).subspan(row, at(width_)));
    } else {
      for (double& value : output_) value = apply(value);
    }
    return output_;
  }

  [[nodiscard]] Values backward(Values gradient) const {
    if (function_ == ActivationFunction::softmax) {
      for (std::size_t row = 0; row < gradient.size(); row += at(width_)) {
        double dot = 0;
        for (std::size_t i = row; i < row + at(width_); ++i) dot += gradient[i] * output_[i];
        for (std::size_t i = row; i < row + at(width_); ++i) gradient[i] = output_[i] * (gradient[i] - dot);
      }
    } else {
      for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] *= derivative(output_[i]);
    }
    return gradient;
  }

 private:
  static void softmax(std::span<double> row) {
    double largest = -std::numeric_limits<double>::infinity();
    for (const double value : row) largest = std::max(largest, value);
    double sum = 0;
    for (double& value : row) sum += value = std::exp(value - largest);
    for (double& value : row) value /= sum;
  }

  [[nodiscard]] double apply(double z) const {
    switch (function_.kind) {
      case ActivationFunction::Kind::relu: return z > 0 ? z : 0;
      case ActivationFunction::Kind::sigmoid: return 1 / (1 + std::exp(-z));
      case ActivationFunction::Kind::tanh: return std::tanh(z);
      default: return z;
    }
  }

  [[nodiscard]] double derivative(double y) const {
    switch (function_.kind) {
      case ActivationFunction::Kind::relu: return y > 0 ? 1 : 0;
      case ActivationFunction::Kind::sigmoid: return y * (1 - y);
      case ActivationFunction::Kind::tanh: return 1 - y * y;
      default: return 1;
    }
  }

  ActivationFunction function_;
  std::int64_t width_;
  Values output_;
};

}  // namespace lockstep::reference
