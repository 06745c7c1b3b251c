// Computes losses, their gradients and metric sums from the model's output, or losses from its logits. The formulas are
// in losses/ and metrics/.
#include "backend/cpu/activation.hpp"
#include "backend/cpu/kernel.hpp"
#include "backend/cpu/regularization.hpp"
#include "backend/loss_scale.hpp"
#include "core/range.hpp"
#include "losses/loss_registry.hpp"
#include "metrics/metric_registry.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

/// What a rule reads of an example: `count` outputs at a time.
class Vectors {
 public:
  Vectors(const KernelScope& scope, bool is_per_vector)
      : elements_(scope.input().elements()), count_(is_per_vector ? scope.input().channels : elements_) {}

  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::int64_t per_example() const { return elements_ / count_; }

  /// Calls visit(begin, target) for each vector of one of this rank's examples; the vector's outputs begin at `begin`.
  /// `targets`: of all examples.
  template <bool takes_classes>
  void for_each(const StepContext& context, const TargetPointer& targets, std::size_t local_example,
                const auto& visit) const {
    const auto example = static_cast<std::int64_t>(context.examples[local_example]);
    for (std::int64_t vector = 0; vector < per_example(); ++vector) {
      const std::int64_t begin = static_cast<std::int64_t>(local_example) * elements_ + vector * count_;
      if constexpr (takes_classes) {
        const std::int32_t* const classes = std::get<const std::int32_t*>(targets);
        visit(begin, ClassTarget<std::int64_t>{classes[example * per_example() + vector]});
      } else {
        const float* const values = std::get<const float*>(targets);
        visit(begin, DenseTarget<std::int64_t>{values + example * elements_ + vector * count_});
      }
    }
  }

 private:
  std::int64_t elements_;
  std::int64_t count_;
};

/// Stores the derivatives of one example's loss, multiplied by `scale`.
struct ScaledGradient {
  float* gradient;  ///< null if no gradient is needed
  float scale;

  [[nodiscard]] bool is_wanted() const { return gradient != nullptr; }
  void operator()(std::int64_t k, float derivative) const { gradient[k] = derivative * scale; }
};

const GraphOutput& model_output_of(const KernelScope& scope) {
  return scope.graph.outputs[scope.operation.model_output];
}

/// Writes the sums of one metric and, if it is weighted, the sum of the examples' weights after them.
template <bool takes_classes, typename Rule>
class MetricKernel final : public Kernel {
 public:
  MetricKernel(const KernelScope& scope, const Rule& rule, const Metric& metric, bool is_weighted, float* sums)
      : rule_(rule),
        is_weighted_(is_weighted),
        added_(num_sums(metric)),
        vectors_(scope, is_per_vector(metric)),
        model_output_(scope.operation.model_output),
        outputs_(scope.value<float>(scope.operation.input)),
        sums_(sums) {}

  void run(const StepContext& context) override {
    std::ranges::fill(added_, 0.0);
    double weights = 0;
    const Range counted = context.counted_examples();
    const TargetPointer targets = context.data.target(model_output_);
    for (std::size_t r = counted.begin; r < counted.end; ++r) {
      const float weight = is_weighted_ ? context.weight_of(r) : 1.0F;
      weights += weight;
      vectors_.for_each<takes_classes>(context, targets, r, [&](std::int64_t begin, const auto& target) {
        rule_(outputs_ + begin, vectors_.count(), target, weight, added_.data());
      });
    }
    const auto per_example = static_cast<double>(vectors_.per_example());
    std::ranges::transform(added_, sums_, [=](double sum) { return static_cast<float>(sum / per_example); });
    if (is_weighted_) sums_[added_.size()] = static_cast<float>(weights);
  }

 private:
  Rule rule_;
  bool is_weighted_;
  std::vector<double> added_;
  Vectors vectors_;
  std::size_t model_output_;
  const float* outputs_;
  float* sums_;
};

template <bool takes_classes, typename Rule>
class LossKernel final : public Kernel {
 public:
  LossKernel(const KernelScope& scope, const Rule& rule)
      : rule_(rule),
        reduction_(reduction_of(model_output_of(scope).loss)),
        loss_weight_(model_output_of(scope).loss_weight),
        model_output_(scope.operation.model_output),
        vectors_(scope, is_per_vector(model_output_of(scope).loss)),
        differentiated_(scope.operation.operands.front()),
        outputs_(scope.value<float>(differentiated_.tensor)),
        gradient_(differentiated_.needs_gradient ? scope.gradient<float>(differentiated_.tensor) : nullptr),
        written_(scope.weights_gradient(scope.operation.parameter)),
        penalties_(scope) {
    for (std::size_t i = 1; i < scope.operation.operands.size(); ++i) {
      const Operand& operand = scope.operation.operands[i];
      activity_penalties_.push_back({scope.value<float>(operand.tensor),
                                     operand.needs_gradient ? scope.gradient<float>(operand.tensor) : nullptr});
    }
    const GraphOutput& of = model_output_of(scope);
    float* sums = written_ + of.first_sum;
    if (scope.graph.outputs.size() > 1) own_loss_ = sums++;
    for (const bool is_weighted : {false, true}) {
      for (const Metric& metric : is_weighted ? of.weighted_metrics : of.metrics) {
        with_metric_rule(metric, [&]<typename MetricRule>(const MetricRule& metric_rule) {
          metrics_.push_back(
              std::make_unique<MetricKernel<takes_classes, MetricRule>>(scope, metric_rule, metric, is_weighted, sums));
        });
        sums += num_sums(metric) + (is_weighted ? 1 : 0);
      }
    }
  }

  void run(const StepContext& context) override {
    double loss = 0;
    const Range counted = context.counted_examples();
    const std::size_t num_examples = context.examples.size();
    const LossScale scale = loss_scale(reduction_, context);
    const TargetPointer targets = context.data.target(model_output_);
    float* const gradients = context.training ? gradient_ : nullptr;
    const auto per_example = static_cast<double>(vectors_.per_example());
    for (std::size_t r = 0; r < num_examples; ++r) {
      const float weight = context.weight_of(r);
      const float gradient_scale = static_cast<float>(scale.gradient * loss_weight_ / per_example) * weight;
      double of_example = 0;
      vectors_.for_each<takes_classes>(context, targets, r, [&](std::int64_t begin, const auto& target) {
        const ScaledGradient gradient{gradients == nullptr ? nullptr : gradients + begin, gradient_scale};
        of_example += rule_(outputs_ + begin, vectors_.count(), target, gradient);
      });
      const bool is_counted = r >= counted.begin && r < counted.end;
      loss += (is_counted ? static_cast<double>(weight) : 0) * of_example / per_example;
    }
    for (const std::unique_ptr<Kernel>& metric : metrics_) metric->run(context);
    if (gradients != nullptr)
      apply_derivative(differentiated_.activation, outputs_, gradients,
                       num_examples * static_cast<std::size_t>(vectors_.count() * vectors_.per_example()));
    if (own_loss_ != nullptr) *own_loss_ = static_cast<float>(loss * scale.loss);
    const double weighted_loss = loss_weight_ * loss * scale.loss;
    if (model_output_ > 0) {  // the first output's loss has written what is not an output's
      written_[metric_loss] += static_cast<float>(weighted_loss);
      return;
    }
    const double penalty =
        penalties_.sum_over_examples(counted.size(), context.examples.size()) + add_activity_penalties(context);
    written_[metric_loss] = static_cast<float>(weighted_loss + penalty);
    written_[metric_count] = static_cast<float>(counted.size());
    written_[metric_stop_after_this_step] = context.request == StopRequest::after_this_step ? 1 : 0;
    written_[metric_stop_after_next_backup] = context.request == StopRequest::after_next_backup ? 1 : 0;
  }

 private:
  /// Of the outputs of a layer's call: a number for each example, and its gradient.
  struct ActivityPenalty {
    const float* values = nullptr;
    float* gradient = nullptr;  ///< null if nothing needs it
  };

  /// Writes their gradients, and returns their sum over the counted examples. Neither the loss's reduction nor the
  /// weights of examples count for them.
  [[nodiscard]] double add_activity_penalties(const StepContext& context) const {
    const Range counted = context.counted_examples();
    double sum = 0;
    for (const ActivityPenalty& penalty : activity_penalties_) {
      for (std::size_t r = counted.begin; r < counted.end; ++r) sum += penalty.values[r];
      if (!context.training || penalty.gradient == nullptr) continue;
      std::fill_n(penalty.gradient, context.examples.size(), static_cast<float>(context.gradient_scale));
    }
    return sum;
  }

  Rule rule_;
  Reduction reduction_;
  double loss_weight_;
  std::size_t model_output_;
  Vectors vectors_;
  Operand differentiated_;
  const float* outputs_;  ///< the differentiated tensor
  float* gradient_;
  float* written_;             ///< see MetricIndex
  float* own_loss_ = nullptr;  ///< of several outputs: where this one's loss goes
  Penalties penalties_;
  std::vector<ActivityPenalty> activity_penalties_;
  std::vector<std::unique_ptr<Kernel>> metrics_;
};

}  // namespace

std::unique_ptr<Kernel> make_loss(const KernelScope& scope) {
  return with_loss_rule(model_output_of(scope).loss,
                        [&scope]<bool takes_classes, typename Rule>(const Rule& rule) -> std::unique_ptr<Kernel> {
                          return std::make_unique<LossKernel<takes_classes, Rule>>(scope, rule);
                        });
}

}  // namespace lockstep
