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

/// The target of one of this rank's examples, for an output of `count` elements. `targets`: of all examples.
template <bool takes_classes>
auto target_of(const StepContext& context, const TargetPointer& targets, std::size_t local_example,
               std::int64_t count) {
  const auto example = static_cast<std::int64_t>(context.examples[local_example]);
  if constexpr (takes_classes) {
    return ClassTarget<std::int64_t>{std::get<const std::int32_t*>(targets)[example]};
  } else {
    return DenseTarget<std::int64_t>{std::get<const float*>(targets) + example * count};
  }
}

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
  MetricKernel(const KernelScope& scope, const Rule& rule, std::size_t num_sums, bool is_weighted, float* sums)
      : rule_(rule),
        is_weighted_(is_weighted),
        added_(num_sums + (is_weighted ? 1 : 0)),
        count_(scope.input().elements()),
        model_output_(scope.operation.model_output),
        outputs_(scope.value<float>(scope.operation.input)),
        sums_(sums) {}

  void run(const StepContext& context) override {
    std::ranges::fill(added_, 0.0);
    const Range counted = context.counted_examples();
    const TargetPointer targets = context.data.target(model_output_);
    for (std::size_t r = counted.begin; r < counted.end; ++r) {
      const float* output = outputs_ + static_cast<std::int64_t>(r) * count_;
      const float weight = is_weighted_ ? context.weight_of(r) : 1.0F;
      rule_(output, count_, target_of<takes_classes>(context, targets, r, count_), weight, added_.data());
      if (is_weighted_) added_.back() += weight;
    }
    std::ranges::transform(added_, sums_, [](double sum) { return static_cast<float>(sum); });
  }

 private:
  Rule rule_;
  bool is_weighted_;
  std::vector<double> added_;
  std::int64_t count_;
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
        count_(scope.input().elements()),
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
        const std::size_t count = num_sums(metric);
        with_metric_rule(metric, [&]<typename MetricRule>(const MetricRule& metric_rule) {
          metrics_.push_back(
              std::make_unique<MetricKernel<takes_classes, MetricRule>>(scope, metric_rule, count, is_weighted, sums));
        });
        sums += count + (is_weighted ? 1 : 0);
      }
    }
  }

  void run(const StepContext& context) override {
    double loss = 0;
    const Range counted = context.counted_examples();
    const auto num_examples = static_cast<std::int64_t>(context.examples.size());
    const LossScale scale = loss_scale(reduction_, context);
    const TargetPointer targets = context.data.target(model_output_);
    for (std::int64_t r = 0; r < num_examples; ++r) {
      const float* output = outputs_ + r * count_;
      const auto local_example = static_cast<std::size_t>(r);
      const float weight = context.weight_of(local_example);
      const ScaledGradient gradient{context.training && gradient_ != nullptr ? gradient_ + r * count_ : nullptr,
                                    static_cast<float>(scale.gradient * loss_weight_) * weight};
      const bool is_counted = local_example >= counted.begin && local_example < counted.end;
      loss += (is_counted ? static_cast<double>(weight) : 0) *
              rule_(output, count_, target_of<takes_classes>(context, targets, local_example, count_), gradient);
    }
    for (const std::unique_ptr<Kernel>& metric : metrics_) metric->run(context);
    if (context.training && gradient_ != nullptr) {
      apply_derivative(differentiated_.activation, outputs_, gradient_,
                       static_cast<std::size_t>(num_examples * count_));
    }
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
  std::int64_t count_;
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
