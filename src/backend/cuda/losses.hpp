// Bodies of the losses: one row of outputs gives its loss, whether it was right, and the first gradient of backward.
#pragma once

#include "backend/cuda/elements.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace lockstep::cuda {

enum class LossKind { sparse_crossentropy, categorical_crossentropy, mean_squared_error };

struct RowResult {
  float loss = 0;
  float correct = 0;
};

struct LossRow {
  const StepArguments* arguments;
  LossKind kind;
  bool from_logits;
  const float* outputs;
  float* gradients;             ///< null where none is wanted
  Index count;                  ///< outputs of a row
  ActivationFunction function;  ///< that made the outputs

  LOCKSTEP_HOST_DEVICE RowResult operator()(Index row) const {
    const std::size_t example = arguments->examples[row];
    Target target{nullptr, 0};
    if (kind == LossKind::sparse_crossentropy) {
      target.expected = static_cast<Index>(static_cast<const std::int32_t*>(arguments->targets)[example]);
    } else {
      target.shares = static_cast<const float*>(arguments->targets) + example * count;
      target.expected = place_of_largest(target.shares);
    }
    const float* output = outputs + static_cast<std::size_t>(row) * count;
    float* gradient = gradients == nullptr ? nullptr : gradients + static_cast<std::size_t>(row) * count;
    RowResult result;
    result.correct = place_of_largest(output) == target.expected ? 1.0F : 0.0F;
    if (kind == LossKind::mean_squared_error) {
      result.loss = squared_error(output, target, gradient);
    } else {
      result.loss = from_logits ? logits(output, target, gradient) : probabilities(output, target, gradient);
    }
    return result;
  }

 private:
  static constexpr float clip = 1e-7F;  // Keras' epsilon: probabilities are kept this far from 0 and 1

  /// The share of each class: given, or all of one.
  struct Target {
    const float* shares;
    Index expected;
    [[nodiscard]] LOCKSTEP_HOST_DEVICE float of(Index k) const {
      return shares != nullptr ? shares[k] : k == expected ? 1.0F : 0.0F;
    }
  };

  [[nodiscard]] LOCKSTEP_HOST_DEVICE Index place_of_largest(const float* values) const {
    Index place = 0;  // the first of equals, as argmax
    for (Index k = 1; k < count; ++k) {
      if (values[k] > values[place]) place = k;
    }
    return place;
  }

  [[nodiscard]] LOCKSTEP_HOST_DEVICE float logits(const float* z, const Target& target, float* gradient) const {
    float largest = z[0];
    for (Index k = 1; k < count; ++k) largest = std::fmax(largest, z[k]);
    float sum = 0;
    for (Index k = 0; k < count; ++k) sum += std::exp(z[k] - largest);
    const float log_sum = std::log(sum) + largest;
    float loss = 0;
    float total = 0;
    for (Index k = 0; k < count; ++k) {
      const float share = target.of(k);
      if (share != 0.0F) loss += share * (log_sum - z[k]);
      total += share;
    }
    for (Index k = 0; gradient != nullptr && k < count; ++k) {
      write(gradient[k], z[k], std::exp(z[k] - log_sum) * total - target.of(k));
    }
    return loss;
  }

  [[nodiscard]] LOCKSTEP_HOST_DEVICE float probabilities(const float* p, const Target& target, float* gradient) const {
    float loss = 0;
    for (Index k = 0; k < count; ++k) {
      const float share = target.of(k);
      const float clipped = std::fmin(std::fmax(p[k], clip), 1.0F - clip);
      if (share != 0.0F) loss -= share * std::log(clipped);
      if (gradient != nullptr) write(gradient[k], p[k], clipped == p[k] ? -share / clipped : 0.0F);
    }
    return loss;
  }

  [[nodiscard]] LOCKSTEP_HOST_DEVICE float squared_error(const float* y, const Target& target, float* gradient) const {
    const auto n = static_cast<float>(count);
    float loss = 0;
    for (Index k = 0; k < count; ++k) {
      const float difference = y[k] - target.of(k);
      loss += difference * difference;
      if (gradient != nullptr) write(gradient[k], y[k], 2.0F * difference / n);
    }
    return loss / n;
  }

  LOCKSTEP_HOST_DEVICE void write(float& gradient, float output, float of_loss) const {
    gradient = through(function, output, of_loss * arguments->gradient_scale);
  }
};

}  // namespace lockstep::cuda
