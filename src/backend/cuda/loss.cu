// Computes losses, their gradients and metric sums. One thread block processes all examples, so that the sums have a
// fixed order.
#include "backend/cuda/kernel.hpp"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/loss_functors.hpp"
#include "backend/cuda/term_sum.cuh"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::cuda {

namespace {

template <typename ExampleLoss>
__global__ void run_loss(const __grid_constant__ ExampleLoss example_loss, Index num_examples, float* written) {
  double sum = 0;
  for (Index example = threadIdx.x; example < num_examples; example += blockDim.x) sum += example_loss(example);
  const double loss = sum_over_block(sum);
  if (threadIdx.x != 0) return;
  written[metric_loss] = static_cast<float>(loss * example_loss.arguments->loss_scale);
  written[metric_count] = static_cast<float>(num_examples);
  const StopRequest request = example_loss.arguments->request;
  written[metric_stop_after_this_step] = request == StopRequest::after_this_step ? 1.0F : 0.0F;
  written[metric_stop_after_next_backup] = request == StopRequest::after_next_backup ? 1.0F : 0.0F;
}

template <typename ExampleMetric>
__global__ void run_metric(const __grid_constant__ ExampleMetric example_metric, Index num_examples,
                           std::size_t num_sums, float* written) {
  double sums[ExampleMetric::max_sums] = {};
  double weights = 0;
  for (Index example = threadIdx.x; example < num_examples; example += blockDim.x) {
    example_metric(example, sums);
    weights += example_metric.weight(example);
  }
  for (std::size_t i = 0; i < num_sums + (example_metric.is_weighted ? 1 : 0); ++i) {
    const double sum = sum_over_block(i < num_sums ? sums[i] / example_metric.vectors.per_example : weights);
    if (threadIdx.x == 0) written[i] = static_cast<float>(sum);
    __syncthreads();
  }
}

Vectors vectors_of(const KernelScope& scope, bool is_per_vector) {
  const std::int64_t count = is_per_vector ? scope.input().channels : scope.input().elements();
  return {.count = static_cast<Index>(count), .per_example = static_cast<Index>(scope.input().elements() / count)};
}

/// Writes the sums of one metric and, if it is weighted, the sum of the examples' weights after them.
template <bool takes_classes, typename Rule>
class MetricKernel final : public Kernel {
 public:
  MetricKernel(const KernelScope& scope, const Rule& rule, const Metric& metric, bool is_weighted, float* sums)
      : stream_(scope.cuda_context.stream()),
        num_examples_(static_cast<Index>(scope.num_examples)),
        num_sums_(num_sums(metric)),
        sums_(sums),
        example_metric_{.arguments = scope.arguments,
                        .rule = rule,
                        .outputs = scope.value<float>(scope.operation.input),
                        .vectors = vectors_of(scope, is_per_vector(metric)),
                        .is_weighted = is_weighted} {
    if (num_sums_ <= Rule::max_sums) return;
    throw UsageError("the metric " + std::string(keras_name(metric)) + " with " + std::to_string(num_sums_) +
                     " sums is not supported on GPUs yet, which keep at most " + std::to_string(Rule::max_sums) +
                     "; give it fewer thresholds or classes, or use --device cpu");
  }

  void enqueue(const StepContext& /*context*/) override {
    launch(stream_, 1, sum_threads, run_metric<ExampleMetric<takes_classes, Rule>>, example_metric_, num_examples_,
           num_sums_, sums_);
  }

 private:
  cudaStream_t stream_;
  Index num_examples_;
  std::size_t num_sums_;
  float* sums_;
  ExampleMetric<takes_classes, Rule> example_metric_;
};

template <bool takes_classes, typename Rule>
class LossKernel final : public Kernel {
 public:
  LossKernel(const KernelScope& scope, const Rule& rule)
      : stream_(scope.cuda_context.stream()),
        num_examples_(static_cast<Index>(scope.num_examples)),
        gradient_(differentiated(scope).needs_gradient ? scope.gradient<float>(differentiated(scope).tensor) : nullptr),
        written_(scope.weights_gradient(scope.operation.parameter)),
        example_loss_{.arguments = scope.arguments,
                      .rule = rule,
                      .outputs = scope.value<float>(differentiated(scope).tensor),
                      .gradients = nullptr,
                      .vectors = vectors_of(scope, is_per_vector(scope.graph.outputs.front().loss)),
                      .function = differentiated(scope).activation} {
    const GraphOutput& output = scope.graph.outputs.front();
    float* sums = written_ + output.first_sum;
    for (const bool is_weighted : {false, true}) {
      for (const Metric& metric : is_weighted ? output.weighted_metrics : output.metrics) {
        with_metric_rule(metric, [&]<typename MetricRule>(const MetricRule& metric_rule) {
          metrics_.push_back(
              std::make_unique<MetricKernel<takes_classes, MetricRule>>(scope, metric_rule, metric, is_weighted, sums));
        });
        sums += num_sums(metric) + (is_weighted ? 1 : 0);
      }
    }
  }

  void enqueue(const StepContext& context) override {
    ExampleLoss<takes_classes, Rule> example_loss = example_loss_;
    if (context.training) example_loss.gradients = gradient_;
    launch(stream_, 1, sum_threads, run_loss<ExampleLoss<takes_classes, Rule>>, example_loss, num_examples_, written_);
    for (const std::unique_ptr<Kernel>& metric : metrics_) metric->enqueue(context);
  }

 private:
  static const Operand& differentiated(const KernelScope& scope) { return scope.operation.operands.front(); }

  cudaStream_t stream_;
  Index num_examples_;
  float* gradient_;
  float* written_;  ///< see MetricIndex
  ExampleLoss<takes_classes, Rule> example_loss_;
  std::vector<std::unique_ptr<Kernel>> metrics_;
};

}  // namespace

std::unique_ptr<Kernel> make_loss(const KernelScope& scope) {
  refuse_regularizers_and_constraints(scope.graph);
  refuse_several_inputs_or_outputs(scope.graph);
  return with_loss_rule(scope.graph.outputs.front().loss,
                        [&scope]<bool takes_classes, typename Rule>(const Rule& rule) -> std::unique_ptr<Kernel> {
                          return std::make_unique<LossKernel<takes_classes, Rule>>(scope, rule);
                        });
}

}  // namespace lockstep::cuda
