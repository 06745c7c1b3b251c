// Convolutions with fused bias and activation: ordinary, grouped and transposed ones. On oneDNN, or on our own kernels
// where the choice of algorithms says so. A row-parallel
// convolution reads a shard of the input channels and computes a partial sum; a separate kernel adds the bias after the
// all-reduce.
#include "backend/cpu/winograd/convolution.hpp"
#include "backend/cpu/activation.hpp"
#include "backend/cpu/bias_activation.hpp"
#include "backend/cpu/bias_gradient.hpp"
#include "backend/cpu/convolution_descriptors.hpp"
#include "backend/cpu/depthwise.hpp"
#include "backend/cpu/few_channels.hpp"
#include "backend/cpu/kernel.hpp"
#include "backend/cpu/layout_conversion.hpp"
#include "backend/cpu/tensor_descriptor.hpp"
#include "core/aligned_buffer.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

using dnnl::memory;

/// A convolution's kernel as a pass reads it. The first microbatch converts it for all of them.
LayoutConversion weights_as(const KernelScope& scope, const memory::desc& wanted) {
  const auto [shared, is_first] =
      scope.converted_weights.try_emplace({scope.operation.parameter, scope.operation.kind});
  if (!is_first && shared->second.get_desc() == wanted) return LayoutConversion(shared->second);
  LayoutConversion conversion(scope.dnnl, scope.weight_layout(), scope.weights(scope.operation.parameter), wanted,
                              true);
  if (is_first) shared->second = conversion.wanted();
  return conversion;
}

/// Accumulates a parameter's gradient over microbatches. oneDNN overwrites its result, so the first microbatch writes
/// to the arena, and each later one to separate memory that is then added to the arena.
class GradientAccumulator {
 public:
  GradientAccumulator() = default;
  GradientAccumulator(const KernelScope& scope, int parameter, std::size_t count)
      : count_(count), sum_(scope.weights_gradient(parameter)), addend_(sum_) {
    if (scope.operation.microbatch.index == 0) return;
    memory_ = AlignedBuffer(count * sizeof(float));
    addend_ = memory_.as<float>().data();
  }
  /// Where to write this microbatch's gradient before calling `add`.
  [[nodiscard]] float* addend() const noexcept { return addend_; }
  void add() const noexcept {
    if (addend_ == sum_) return;
    for (std::size_t i = 0; i < count_; ++i) sum_[i] += addend_[i];
  }

 private:
  std::size_t count_ = 0;
  float* sum_ = nullptr;
  float* addend_ = nullptr;
  AlignedBuffer memory_;
};

class ConvolutionForward final : public Kernel {
 public:
  explicit ConvolutionForward(const KernelScope& scope) {
    const ConvolutionProblem problem = problem_of(scope);
    if (scope.operation.is_transposed) {
      bind_transposed(scope, problem);
    } else {
      bind(scope, problem);
    }
  }

  void run(const StepContext& /*context*/) override {
    weights_.run();
    input_.run();
    forward_.run();
    output_.run();
    if (activation_) activation_->run();
    if (bias_activation_) bias_activation_->run();
  }
  [[nodiscard]] std::string implementation() const override { return implementation_; }

 private:
  void bind(const KernelScope& scope, const ConvolutionProblem& problem) {
    const auto forward = describe_forward(problem);
    const bool is_partial = produces_partial_sum(scope.graph, scope.operation);
    implementation_ = forward.impl_info_str();
    activation_.emplace(scope, is_fused(scope.operation.activation));
    weights_ = weights_as(scope, forward.weights_desc());
    input_ = {scope.dnnl, stored_as(scope.input(), problem.input(), scope.num_examples, forward.src_desc()),
              scope.value<void>(scope.operation.input), forward.src_desc(), true};
    TensorSpec output = scope.output();
    if (is_partial) output.type = ElementType::float32;
    void* result =
        is_partial ? scope.weights_gradient(*scope.operation.partial_sum) : scope.value<void>(scope.operation.output);
    output_ = {scope.dnnl, stored_as(output, problem.output(), scope.num_examples, forward.dst_desc()), result,
               forward.dst_desc(), false};
    std::vector<onednn::BoundPrimitive::Argument> arguments{
        {DNNL_ARG_SRC, input_.wanted()}, {DNNL_ARG_WEIGHTS, weights_.wanted()}, {DNNL_ARG_DST, output_.wanted()}};
    if (scope.has_bias() && !is_partial) {
      arguments.push_back({DNNL_ARG_BIAS, memory(forward.bias_desc(), scope.dnnl.engine,
                                                 scope.weights(scope.operation.parameter + 1))});
    }
    forward_ = {scope.dnnl, dnnl::convolution_forward(forward), std::move(arguments)};
  }

  /// The primitive computes float32 sums, in place if the output is float32.
  void bind_transposed(const KernelScope& scope, const ConvolutionProblem& problem) {
    const auto forward = describe_backward_data(problem);
    implementation_ = forward.impl_info_str();
    weights_ = weights_as(scope, forward.weights_desc());
    input_ = {scope.dnnl, stored_as(scope.input(), problem.input(), scope.num_examples, forward.diff_dst_desc()),
              scope.value<void>(scope.operation.input), forward.diff_dst_desc(), true};
    TensorSpec output = scope.output();
    auto* sums = scope.value<float>(scope.operation.output);
    if (output.type != ElementType::float32) {
      output.type = ElementType::float32;
      sums_ = AlignedBuffer(scope.count(output) * sizeof(float));
      sums = sums_.as<float>().data();
    }
    output_ = {scope.dnnl, stored_as(output, problem.output(), scope.num_examples, forward.diff_src_desc()), sums,
               forward.diff_src_desc(), false};
    bias_activation_.emplace(scope, sums);
    forward_ = {scope.dnnl,
                dnnl::convolution_backward_data(forward),
                {{DNNL_ARG_DIFF_DST, input_.wanted()},
                 {DNNL_ARG_WEIGHTS, weights_.wanted()},
                 {DNNL_ARG_DIFF_SRC, output_.wanted()}}};
  }

  LayoutConversion weights_;
  LayoutConversion input_;
  LayoutConversion output_;
  onednn::BoundPrimitive forward_;
  AlignedBuffer sums_;
  std::optional<UnfusedActivation> activation_;    ///< of an ordinary convolution
  std::optional<BiasActivation> bias_activation_;  ///< of a transposed one
  std::string implementation_;
};

class ConvolutionBackward final : public Kernel {
 public:
  explicit ConvolutionBackward(const KernelScope& scope) : input_derivative_(scope) {
    const ConvolutionProblem problem = problem_of(scope);
    if (scope.operation.is_frozen) {
      // only the input has a gradient
    } else if (scope.operation.convolution.weights == ConvolutionAlgorithm::direct_depthwise) {
      own_weights_ = make_depthwise_weights(scope);
      implementation_ = own_weights_->implementation();
      const memory::desc gradient = descriptor_of(scope.output(), scope.num_examples);
      output_gradient_ = {scope.dnnl, gradient, scope.gradient<void>(scope.operation.output), gradient, true};
    } else {
      bind_backward_weights(scope, problem);
    }
    if (scope.operation.input_gradient) bind_backward_data(scope, problem);
  }

  void run(const StepContext& context) override {
    output_gradient_.run();
    if (backward_data_) {
      weights_.run();
      backward_data_.run();
      converted_gradient_.run();
      input_derivative_.run();
    }
    if (own_weights_ != nullptr) own_weights_->run(context);
    if (!backward_weights_) return;
    converted_input_.run();
    backward_weights_.run();
    weights_gradient_.run();
    weights_sum_.add();
    bias_sum_.add();
    bias_gradient_.run();
  }

  [[nodiscard]] std::string implementation() const override { return implementation_; }

 private:
  void bind_output_gradient(const KernelScope& scope, const ConvolutionProblem& problem, const memory::desc& wanted) {
    output_gradient_ = {scope.dnnl, stored_as(scope.output(), problem.output_gradient(), scope.num_examples, wanted),
                        scope.gradient<void>(scope.operation.output), wanted, true};
  }

  void bind_backward_weights(const KernelScope& scope, const ConvolutionProblem& problem) {
    const int parameter = scope.operation.parameter;
    const bool is_transposed = scope.operation.is_transposed;
    const auto weights = describe_backward_weights(problem);
    implementation_ = weights.impl_info_str();
    // The image and the map (see ConvolutionProblem).
    const memory::desc input = is_transposed ? weights.diff_dst_desc() : weights.src_desc();
    const memory::desc gradient = is_transposed ? weights.src_desc() : weights.diff_dst_desc();
    converted_input_ = {scope.dnnl, stored_as(scope.input(), problem.input(), scope.num_examples, input),
                        scope.value<void>(scope.operation.input), input, true};
    bind_output_gradient(scope, problem, gradient);
    weights_sum_ = GradientAccumulator(scope, parameter, scope.weight_layout().get_size() / sizeof(float));
    weights_gradient_ =
        LayoutConversion(scope.dnnl, scope.weight_layout(), weights_sum_.addend(), weights.diff_weights_desc(), false);
    std::vector<onednn::BoundPrimitive::Argument> arguments{
        {DNNL_ARG_SRC, is_transposed ? output_gradient_.wanted() : converted_input_.wanted()},
        {DNNL_ARG_DIFF_DST, is_transposed ? converted_input_.wanted() : output_gradient_.wanted()},
        {DNNL_ARG_DIFF_WEIGHTS, weights_gradient_.wanted()}};
    if (is_transposed || produces_partial_sum(scope.graph, scope.operation)) {
      bias_gradient_ = BiasGradient(scope);
    } else if (scope.has_bias()) {
      const memory::desc bias = weights.diff_bias_desc();
      bias_sum_ = GradientAccumulator(scope, parameter + 1, bias.get_size() / sizeof(float));
      arguments.push_back({DNNL_ARG_DIFF_BIAS, memory(bias, scope.dnnl.engine, bias_sum_.addend())});
    }
    backward_weights_ = {scope.dnnl, dnnl::convolution_backward_weights(weights), std::move(arguments)};
  }

  void bind_backward_data(const KernelScope& scope, const ConvolutionProblem& problem) {
    if (scope.operation.is_transposed) {
      const auto data = describe_forward(problem);
      if (scope.operation.is_frozen) bind_output_gradient(scope, problem, data.src_desc());
      convert_for_data(scope, problem, data.impl_info_str(), data.weights_desc(), data.dst_desc());
      backward_data_ = {scope.dnnl,
                        dnnl::convolution_forward(data),
                        {{DNNL_ARG_SRC, output_gradient_.wanted()},
                         {DNNL_ARG_WEIGHTS, weights_.wanted()},
                         {DNNL_ARG_DST, converted_gradient_.wanted()}}};
    } else {
      const auto data = describe_backward_data(problem);
      if (scope.operation.is_frozen) bind_output_gradient(scope, problem, data.diff_dst_desc());
      convert_for_data(scope, problem, data.impl_info_str(), data.weights_desc(), data.diff_src_desc());
      backward_data_ = {scope.dnnl,
                        dnnl::convolution_backward_data(data),
                        {{DNNL_ARG_DIFF_DST, output_gradient_.wanted()},
                         {DNNL_ARG_WEIGHTS, weights_.wanted()},
                         {DNNL_ARG_DIFF_SRC, converted_gradient_.wanted()}}};
    }
  }

  void convert_for_data(const KernelScope& scope, const ConvolutionProblem& problem, const std::string& implementation,
                        const memory::desc& weights, const memory::desc& gradient) {
    implementation_ += (implementation_.empty() ? "" : ", ") + implementation;
    weights_ = weights_as(scope, weights);
    converted_gradient_ = {scope.dnnl, stored_as(scope.input(), problem.input(), scope.num_examples, gradient),
                           scope.gradient<void>(scope.operation.input), gradient, false};
  }

  InputDerivative input_derivative_;
  LayoutConversion converted_input_;
  LayoutConversion output_gradient_;
  LayoutConversion weights_gradient_;
  GradientAccumulator weights_sum_;
  GradientAccumulator bias_sum_;
  BiasGradient bias_gradient_;
  std::unique_ptr<Kernel> own_weights_;  ///< instead of oneDNN's; also computes the bias gradient
  LayoutConversion weights_;
  LayoutConversion converted_gradient_;
  onednn::BoundPrimitive backward_weights_;
  onednn::BoundPrimitive backward_data_;
  std::string implementation_;
};

/// Backward of a row-parallel convolution on a rank without input channels: computes only the bias gradient.
class BiasBackward final : public Kernel {
 public:
  explicit BiasBackward(const KernelScope& scope) : gradient_(scope) {}
  void run(const StepContext& /*context*/) override { gradient_.run(); }

 private:
  BiasGradient gradient_;
};

}  // namespace

std::unique_ptr<Kernel> make_convolution(const KernelScope& scope) {
  if (scope.operation.convolution.forward == ConvolutionAlgorithm::direct_few_channels)
    return make_few_channels_forward(scope);
  if (scope.operation.convolution.forward == ConvolutionAlgorithm::winograd) return make_winograd_forward(scope);
  return std::make_unique<ConvolutionForward>(scope);
}

std::unique_ptr<Kernel> make_convolution_backward(const KernelScope& scope) {
  if (scope.input().elements() == 0) return std::make_unique<BiasBackward>(scope);
  if (scope.operation.convolution.weights == ConvolutionAlgorithm::direct_few_channels)
    return make_few_channels_weights(scope);
  if (scope.operation.convolution.weights == ConvolutionAlgorithm::winograd) return make_winograd_backward(scope);
  return std::make_unique<ConvolutionBackward>(scope);
}

}  // namespace lockstep
