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

/// The target of one of this rank's examples, for a model of `count` outputs.
template <bool takes_classes>
auto target_of(const StepContext& context, std::size_t local_example, std::int64_t count) {
  const auto example = static_cast<std::int64_t>(context.examples[local_example]);
  if constexpr (takes_classes) {
    return ClassTarget<std::int64_t>{std::get<const std::int32_t*>(context.data.targets)[example]};
  } else {
    return DenseTarget<std::int64_t>{std::get<const float*>(context.data.targets) + example * count};
  }
}

/// Stores the derivatives of one example's loss, multiplied by `scale`.
struct ScaledGradient {
  float* gradient;  ///< null if no gradient is needed
  float scale;

  [[nodiscard]] bool is_wanted() const { return gradient != nullptr; }
  void operator()(std::int64_t k, float derivative) const { gradient[k] = derivative * scale; }
};

/// Writes the sums of one metric and, if it is weighted, the sum of the examples' weights after them.
template <bool takes_classes, typename Rule>
class MetricKernel final : public Kernel {
 public:
  MetricKernel(const KernelScope& scope, const Rule& rule, std::size_t num_sums, bool is_weighted, float* sums)
      : rule_(rule),
        is_weighted_(is_weighted),
        added_(num_sums + (is_weighted ? 1 : 0)),
        count_(scope.input().elements()),
        outputs_(scope.value<float>(scope.operation.input)),
        sums_(sums) {}

  void run(const StepContext& context) override {
    std::ranges::fill(added_, 0.0);
    const Range counted = context.counted_examples();
    for (std::size_t r = counted.begin; r < counted.end; ++r) {
      const float* output = outputs_ + static_cast<std::int64_t>(r) * count_;
      const float weight = is_weighted_ ? context.weight_of(r) : 1.0F;
      rule_(output, count_, target_of<takes_classes>(context, r, count_), weight, added_.data());
      if (is_weighted_) added_.back() += weight;
    }
    std::ranges::transform(added_, sums_, [](double sum) { return static_cast<float>(sum); });
  }

 private:
  Rule rule_;
  bool is_weighted_;
  std::vector<double> added_;
  std::int64_t count_;
  const float* outputs_;
  float* sums_;
};

template <bool takes_classes, typename Rule>
class LossKernel final : public Kernel {
 public:
  LossKernel(const KernelScope& scope, const Rule& rule)
      : rule_(rule),
        reduction_(reduction_of(scope.graph.loss)),
        count_(scope.input().elements()),
        differentiated_(scope.operation.operands.front()),
        outputs_(scope.value<float>(differentiated_.tensor)),
        gradient_(differentiated_.needs_gradient ? scope.gradient<float>(differentiated_.tensor) : nullptr),
        written_(scope.weights_gradient(scope.operation.parameter)),
        penalties_(scope) {
    float* sums = written_ + first_metric_sum;
    for (const bool is_weighted : {false, true}) {
      for (const Metric& metric : is_weighted ? scope.graph.weighted_metrics : scope.graph.metrics) {
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
    for (std::int64_t r = 0; r < num_examples; ++r) {
      const float* output = outputs_ + r * count_;
      const auto local_example = static_cast<std::size_t>(r);
      const float weight = context.weight_of(local_example);
      const ScaledGradient gradient{context.training && gradient_ != nullptr ? gradient_ + r * count_ : nullptr,
                                    static_cast<float>(scale.gradient) * weight};
      const bool is_counted = local_example >= counted.begin && local_example < counted.end;
      loss += (is_counted ? static_cast<double>(weight) : 0) *
              rule_(output, count_, target_of<takes_classes>(context, local_example, count_), gradient);
    }
    for (const std::unique_ptr<Kernel>& metric : metrics_) metric->run(context);
    if (context.training && gradient_ != nullptr) {
      apply_derivative(differentiated_.activation, outputs_, gradient_,
                       static_cast<std::size_t>(num_examples * count_));
    }
    const double penalty = penalties_.sum_over_examples(counted.size(), context.examples.size());
    written_[metric_loss] = static_cast<float>(loss * scale.loss + penalty);
    written_[metric_count] = static_cast<float>(counted.size());
    written_[metric_stop_after_this_step] = context.request == StopRequest::after_this_step ? 1 : 0;
    written_[metric_stop_after_next_backup] = context.request == StopRequest::after_next_backup ? 1 : 0;
  }

 private:
  Rule rule_;
  Reduction reduction_;
  std::int64_t count_;
  Operand differentiated_;
  const float* outputs_;  ///< the differentiated tensor
  float* gradient_;
  float* written_;  ///< see MetricIndex
  Penalties penalties_;
  std::vector<std::unique_ptr<Kernel>> metrics_;
};

}  // namespace

std::unique_ptr<Kernel> make_loss(const KernelScope& scope) {
  return with_loss_rule(scope.graph.loss,
                        [&scope]<bool takes_classes, typename Rule>(const Rule& rule) -> std::unique_ptr<Kernel> {
                          return std::make_unique<LossKernel<takes_classes, Rule>>(scope, rule);
                        });
}

}  // namespace lockstep
