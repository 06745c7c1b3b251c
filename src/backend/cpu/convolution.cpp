// Convolution on oneDNN with fused bias and activation. A row-parallel convolution reads a shard of the input channels
// and computes a partial sum; a separate kernel adds the bias after the all-reduce.
#include "backend/cpu/activation.hpp"
#include "backend/cpu/bias_gradient.hpp"
#include "backend/cpu/convolution_descriptors.hpp"
#include "backend/cpu/kernel.hpp"
#include "backend/cpu/tensor_descriptor.hpp"
#include "core/aligned_buffer.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

using dnnl::memory;

/// Converts between the layout of the arena and the layout that a primitive wants, before or after the primitive runs.
/// If both are equal, the primitive uses the arena's memory and `run` does nothing.
class LayoutConversion {
 public:
  LayoutConversion() = default;
  LayoutConversion(const onednn::Context& context, const memory::desc& arena, void* arena_data,
                   const memory::desc& wanted, bool arena_is_source)
      : wanted_(wanted, context.engine, arena_data) {
    if (arena == wanted) return;
    scratch_ = AlignedBuffer(wanted.get_size());
    wanted_ = memory(wanted, context.engine, scratch_.data());
    const memory outside(arena, context.engine, arena_data);
    copy_ = arena_is_source ? onednn::reorder(context, outside, wanted_) : onednn::reorder(context, wanted_, outside);
  }
  [[nodiscard]] const memory& wanted() const noexcept { return wanted_; }
  void run() const {
    if (copy_) copy_.run();
  }

 private:
  AlignedBuffer scratch_;
  memory wanted_;
  onednn::BoundPrimitive copy_;
};

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
  explicit ConvolutionForward(const KernelScope& scope)
      : descriptors_(scope.dnnl, scope.graph, scope.operation, scope.num_examples),
        weights_(scope.dnnl, scope.weight_layout(), scope.weights(scope.operation.parameter),
                 descriptors_.forward.weights_desc(), true),
        activation_(scope) {
    const auto& forward = descriptors_.forward;
    const dnnl::engine& engine = scope.dnnl.engine;
    const bool is_partial = produces_partial_sum(scope.graph, scope.operation);
    void* result =
        is_partial ? scope.weights_gradient(*scope.operation.partial_sum) : scope.value<void>(scope.operation.output);
    std::vector<onednn::BoundPrimitive::Argument> arguments{
        {DNNL_ARG_SRC, memory(forward.src_desc(), engine, scope.value<void>(scope.operation.input))},
        {DNNL_ARG_WEIGHTS, weights_.wanted()},
        {DNNL_ARG_DST, memory(forward.dst_desc(), engine, result)}};
    if (scope.layer().parameters.size() > 1 && !is_partial) {
      arguments.push_back(
          {DNNL_ARG_BIAS, memory(forward.bias_desc(), engine, scope.weights(scope.operation.parameter + 1))});
    }
    forward_ = {scope.dnnl, dnnl::convolution_forward(forward), std::move(arguments)};
  }

  void run(const StepContext& /*context*/) override {
    weights_.run();
    forward_.run();
    activation_.run();
  }
  [[nodiscard]] std::string implementation() const override { return descriptors_.forward.impl_info_str(); }

 private:
  ConvolutionDescriptors descriptors_;
  LayoutConversion weights_;
  onednn::BoundPrimitive forward_;
  UnfusedActivation activation_;
};

class ConvolutionBackward final : public Kernel {
 public:
  explicit ConvolutionBackward(const KernelScope& scope)
      : descriptors_(scope.dnnl, scope.graph, scope.operation, scope.num_examples),
        input_activation_(scope.operation.input_activation),
        count_(scope.num_examples * static_cast<std::size_t>(scope.input().elements())),
        input_type_(scope.input().type),
        threads_(scope.threads),
        input_(scope.value<std::byte>(scope.operation.input)) {
    const dnnl::engine& engine = scope.dnnl.engine;
    const int parameter = scope.operation.parameter;
    const auto& weights = descriptors_.backward_weights;
    output_gradient_ = LayoutConversion(scope.dnnl, descriptor_of(scope.output(), scope.num_examples),
                                        scope.gradient<void>(scope.operation.output), weights.diff_dst_desc(), true);
    weights_sum_ = GradientAccumulator(scope, parameter, scope.weight_layout().get_size() / sizeof(float));
    weights_gradient_ =
        LayoutConversion(scope.dnnl, scope.weight_layout(), weights_sum_.addend(), weights.diff_weights_desc(), false);
    std::vector<onednn::BoundPrimitive::Argument> arguments{
        {DNNL_ARG_SRC, memory(weights.src_desc(), engine, scope.value<void>(scope.operation.input))},
        {DNNL_ARG_DIFF_DST, output_gradient_.wanted()},
        {DNNL_ARG_DIFF_WEIGHTS, weights_gradient_.wanted()}};
    if (produces_partial_sum(scope.graph, scope.operation)) {
      bias_gradient_ = BiasGradient(scope);
    } else if (scope.layer().parameters.size() > 1) {
      const memory::desc bias = weights.diff_bias_desc();
      bias_sum_ = GradientAccumulator(scope, parameter + 1, bias.get_size() / sizeof(float));
      arguments.push_back({DNNL_ARG_DIFF_BIAS, memory(bias, engine, bias_sum_.addend())});
    }
    backward_weights_ = {scope.dnnl, dnnl::convolution_backward_weights(weights), std::move(arguments)};
    if (scope.operation.input_gradient) bind_backward_data(scope);
  }

  void run(const StepContext& /*context*/) override {
    output_gradient_.run();
    if (backward_data_) {
      weights_.run();
      backward_data_.run();
      if (input_activation_ != ActivationFunction::linear) derive();
    }
    backward_weights_.run();
    weights_gradient_.run();
    weights_sum_.add();
    bias_sum_.add();
    bias_gradient_.run();
  }

  [[nodiscard]] std::string implementation() const override {
    std::string names = descriptors_.backward_weights.impl_info_str();
    if (backward_data_) names += ", " + data_implementation_;
    return names;
  }

 private:
  void bind_backward_data(const KernelScope& scope) {
    const dnnl::engine& engine = scope.dnnl.engine;
    const auto data =
        describe_backward_data(scope.dnnl, scope.graph, scope.operation, scope.num_examples, descriptors_);
    weights_ = LayoutConversion(scope.dnnl, scope.weight_layout(), scope.weights(scope.operation.parameter),
                                data.weights_desc(), true);
    gradient_ = scope.gradient<std::byte>(scope.operation.input);
    backward_data_ = {scope.dnnl,
                      dnnl::convolution_backward_data(data),
                      {{DNNL_ARG_DIFF_DST, output_gradient_.wanted()},
                       {DNNL_ARG_WEIGHTS, weights_.wanted()},
                       {DNNL_ARG_DIFF_SRC, memory(data.diff_src_desc(), engine, gradient_)}}};
    data_implementation_ = data.impl_info_str();
  }

  void derive() const {
    if (input_type_ == ElementType::bfloat16) {
      derive_as<BFloat16>();
    } else {
      derive_as<float>();
    }
  }

  template <typename T>
  void derive_as() const {
    constexpr std::size_t block = 4096;
    const std::size_t blocks = (count_ + block - 1) / block;
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::size_t p = 0; p < blocks; ++p) {
      const std::size_t begin = p * block;
      apply_derivative(input_activation_, reinterpret_cast<const T*>(input_) + begin,
                       reinterpret_cast<T*>(gradient_) + begin, std::min(block, count_ - begin));
    }
  }

  ConvolutionDescriptors descriptors_;
  ActivationFunction input_activation_;
  std::size_t count_;
  ElementType input_type_;
  int threads_;
  std::byte* input_;
  std::byte* gradient_ = nullptr;
  LayoutConversion output_gradient_;
  LayoutConversion weights_gradient_;
  GradientAccumulator weights_sum_;
  GradientAccumulator bias_sum_;
  BiasGradient bias_gradient_;
  LayoutConversion weights_;
  onednn::BoundPrimitive backward_weights_;
  onednn::BoundPrimitive backward_data_;
  std::string data_implementation_;
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
  return std::make_unique<ConvolutionForward>(scope);
}

std::unique_ptr<Kernel> make_convolution_backward(const KernelScope& scope) {
  if (scope.input().elements() == 0) return std::make_unique<BiasBackward>(scope);
  return std::make_unique<ConvolutionBackward>(scope);
}

}  // namespace lockstep
