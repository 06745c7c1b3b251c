// Losses with their gradients and metric sums, in one pass over the model's last tensor.
#include "backend/cpu/activation.hpp"
#include "backend/cpu/kernel.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep {

namespace {

constexpr float clip = 1e-7F;  // Keras' epsilon: probabilities are kept this far from 0 and 1

std::int64_t place_of_largest(const float* values, std::int64_t count) {
  return std::max_element(values, values + count) - values;  // the first of equals, as argmax
}

/// Loss of one example; writes the gradient of the loss, times `scale`, where `gradient` is not null.
struct Row {
  const float* output;
  std::int64_t count;
  float scale;
  float* gradient;

  /// `target(k)` is the share of class k.
  template <typename Target>
  [[nodiscard]] float from_logits(const Target& target) const {
    const float largest = *std::max_element(output, output + count);
    float sum = 0;
    for (std::int64_t k = 0; k < count; ++k) sum += std::exp(output[k] - largest);
    const float log_sum = std::log(sum) + largest;
    float loss = 0;
    for (std::int64_t k = 0; k < count; ++k) {
      if (target(k) != 0.0F) loss += target(k) * (log_sum - output[k]);
    }
    if (gradient == nullptr) return loss;
    float total = 0;
    for (std::int64_t k = 0; k < count; ++k) total += target(k);
    for (std::int64_t k = 0; k < count; ++k) {
      gradient[k] = (std::exp(output[k] - log_sum) * total - target(k)) * scale;
    }
    return loss;
  }

  template <typename Target>
  [[nodiscard]] float from_probabilities(const Target& target) const {
    float loss = 0;
    for (std::int64_t k = 0; k < count; ++k) {
      const float share = target(k);
      const float clipped = std::clamp(output[k], clip, 1.0F - clip);
      if (share != 0.0F) loss -= share * std::log(clipped);
      if (gradient != nullptr) gradient[k] = clipped == output[k] ? -share / clipped * scale : 0.0F;
    }
    return loss;
  }

  [[nodiscard]] float squared_error(const float* target) const {
    const auto n = static_cast<float>(count);
    float loss = 0;
    for (std::int64_t k = 0; k < count; ++k) {
      const float difference = output[k] - target[k];
      loss += difference * difference;
      if (gradient != nullptr) gradient[k] = 2.0F * difference / n * scale;
    }
    return loss / n;
  }
};

class LossKernel final : public Kernel {
 public:
  explicit LossKernel(const KernelScope& scope)
      : loss_(scope.graph.loss),
        count_(scope.input().elements()),
        input_activation_(scope.operation.input_activation),
        outputs_(scope.value<float>(scope.operation.input)),
        gradient_(scope.operation.input_gradient ? scope.gradient<float>(scope.operation.input) : nullptr),
        metrics_(scope.weights_gradient(scope.operation.parameter)) {}

  void run(const StepContext& context) override {
    double loss = 0;
    double correct = 0;
    const auto [counted_begin, counted_end] = context.counted;
    const auto rows = static_cast<std::int64_t>(context.examples.size());
    for (std::int64_t r = 0; r < rows; ++r) {
      const Row row{outputs_ + r * count_, count_, static_cast<float>(context.gradient_scale),
                    context.training && gradient_ != nullptr ? gradient_ + r * count_ : nullptr};
      const auto example = static_cast<std::int64_t>(context.examples[r]);
      const auto place = static_cast<std::size_t>(r);
      const double weight = place >= counted_begin && place < counted_end ? 1 : 0;
      std::int64_t expected = 0;
      if (const auto* classes = std::get_if<const std::int32_t*>(&context.data.targets)) {
        expected = (*classes)[example];
        loss += weight * sparse(row, expected);
      } else {
        const float* target = std::get<const float*>(context.data.targets) + example * count_;
        expected = place_of_largest(target, count_);
        loss += weight * dense(row, target);
      }
      correct += place_of_largest(row.output, count_) == expected ? weight : 0;
    }
    if (context.training && gradient_ != nullptr) {
      apply_derivative(input_activation_, outputs_, gradient_, static_cast<std::size_t>(rows * count_));
    }
    metrics_[metric_loss] = static_cast<float>(loss);
    metrics_[metric_correct] = static_cast<float>(correct);
    const std::size_t counted = std::min(counted_end, context.examples.size());
    metrics_[metric_count] = static_cast<float>(counted - std::min(counted_begin, counted));
    metrics_[metric_leave] = context.request == Request::leave ? 1 : 0;
    metrics_[metric_leave_with_backup] = context.request == Request::leave_with_backup ? 1 : 0;
  }

 private:
  [[nodiscard]] float sparse(const Row& row, std::int64_t expected) const {
    const auto target = [expected](std::int64_t k) { return k == expected ? 1.0F : 0.0F; };
    const auto& loss = std::get<SparseCategoricalCrossentropy>(loss_);
    return loss.from_logits ? row.from_logits(target) : row.from_probabilities(target);
  }

  [[nodiscard]] float dense(const Row& row, const float* shares) const {
    if (std::holds_alternative<MeanSquaredError>(loss_)) return row.squared_error(shares);
    const auto target = [shares](std::int64_t k) { return shares[k]; };
    const auto& loss = std::get<CategoricalCrossentropy>(loss_);
    return loss.from_logits ? row.from_logits(target) : row.from_probabilities(target);
  }

  Loss loss_;
  std::int64_t count_;
  ActivationFunction input_activation_;
  const float* outputs_;
  float* gradient_;
  float* metrics_;
};

}  // namespace

std::unique_ptr<Kernel> make_loss(const KernelScope& scope) { return std::make_unique<LossKernel>(scope); }

}  // namespace lockstep
