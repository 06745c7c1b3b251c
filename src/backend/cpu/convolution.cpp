// Convolution on oneDNN: bias and activation fused. A convolution of a slice of the input channels computes a part of a
// sum over the ranks; there the bias has kernels of its own, in front of and behind the sum.
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

/// Copies `from` to `to` before or after a primitive where their layouts differ; else both are the same memory.
class Bridge {
 public:
  Bridge() = default;
  Bridge(const onednn::Context& context, const memory::desc& arena, void* arena_data, const memory::desc& wanted,
         bool arena_is_source)
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

/// A parameter's gradient where the examples come in several slices: oneDNN overwrites, so the first slice writes to
/// the arena and each other one to memory of its own, which is then added.
class Sum {
 public:
  Sum() = default;
  Sum(const KernelScope& scope, int parameter, std::size_t count)
      : count_(count), sum_(scope.weights_gradient(parameter)), part_(sum_) {
    if (scope.operation.slice == 0) return;
    memory_ = AlignedBuffer(count * sizeof(float));
    part_ = memory_.as<float>().data();
  }
  [[nodiscard]] float* part() const noexcept { return part_; }
  void add() const noexcept {
    if (part_ == sum_) return;
    for (std::size_t i = 0; i < count_; ++i) sum_[i] += part_[i];
  }

 private:
  std::size_t count_ = 0;
  float* sum_ = nullptr;
  float* part_ = nullptr;
  AlignedBuffer memory_;
};

class ConvolutionForward final : public Kernel {
 public:
  explicit ConvolutionForward(const KernelScope& scope)
      : descriptors_(scope.dnnl, scope.graph, scope.operation, scope.rows),
        weights_(scope.dnnl, scope.master(), scope.weights(scope.operation.parameter),
                 descriptors_.forward.weights_desc(), true) {
    const auto& forward = descriptors_.forward;
    const dnnl::engine& engine = scope.dnnl.engine;
    const bool part = gives_part(scope.graph, scope.operation);
    void* result = part ? scope.weights_gradient(scope.operation.sum) : scope.value<void>(scope.operation.output);
    std::vector<onednn::BoundPrimitive::Argument> arguments{
        {DNNL_ARG_SRC, memory(forward.src_desc(), engine, scope.value<void>(scope.operation.input))},
        {DNNL_ARG_WEIGHTS, weights_.wanted()},
        {DNNL_ARG_DST, memory(forward.dst_desc(), engine, result)}};
    if (scope.layer().parameters.size() > 1 && !part) {
      arguments.push_back(
          {DNNL_ARG_BIAS, memory(forward.bias_desc(), engine, scope.weights(scope.operation.parameter + 1))});
    }
    forward_ = {scope.dnnl, dnnl::convolution_forward(forward), std::move(arguments)};
  }

  void run(const StepContext& /*context*/) override {
    weights_.run();
    forward_.run();
  }
  [[nodiscard]] std::string implementation() const override { return descriptors_.forward.impl_info_str(); }

 private:
  ConvolutionDescriptors descriptors_;
  Bridge weights_;
  onednn::BoundPrimitive forward_;
};

class ConvolutionBackward final : public Kernel {
 public:
  explicit ConvolutionBackward(const KernelScope& scope)
      : descriptors_(scope.dnnl, scope.graph, scope.operation, scope.rows),
        input_activation_(scope.operation.input_activation),
        count_(scope.rows * static_cast<std::size_t>(scope.input().elements())),
        input_type_(scope.input().type),
        threads_(scope.threads),
        input_(scope.value<std::byte>(scope.operation.input)) {
    const dnnl::engine& engine = scope.dnnl.engine;
    const int parameter = scope.operation.parameter;
    const auto& weights = descriptors_.backward_weights;
    output_gradient_ = Bridge(scope.dnnl, descriptor_of(scope.output(), scope.rows),
                              scope.gradient<void>(scope.operation.output), weights.diff_dst_desc(), true);
    weights_sum_ = Sum(scope, parameter, scope.master().get_size() / sizeof(float));
    weights_gradient_ = Bridge(scope.dnnl, scope.master(), weights_sum_.part(), weights.diff_weights_desc(), false);
    std::vector<onednn::BoundPrimitive::Argument> arguments{
        {DNNL_ARG_SRC, memory(weights.src_desc(), engine, scope.value<void>(scope.operation.input))},
        {DNNL_ARG_DIFF_DST, output_gradient_.wanted()},
        {DNNL_ARG_DIFF_WEIGHTS, weights_gradient_.wanted()}};
    if (gives_part(scope.graph, scope.operation)) {
      bias_gradient_ = BiasGradient(scope);
    } else if (scope.layer().parameters.size() > 1) {
      const memory::desc bias = weights.diff_bias_desc();
      bias_sum_ = Sum(scope, parameter + 1, bias.get_size() / sizeof(float));
      arguments.push_back({DNNL_ARG_DIFF_BIAS, memory(bias, engine, bias_sum_.part())});
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
    const auto data = describe_backward_data(scope.dnnl, scope.graph, scope.operation, scope.rows, descriptors_);
    weights_ = Bridge(scope.dnnl, scope.master(), scope.weights(scope.operation.parameter), data.weights_desc(), true);
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
    constexpr std::size_t piece = 4096;
    const std::size_t pieces = (count_ + piece - 1) / piece;
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::size_t p = 0; p < pieces; ++p) {
      const std::size_t begin = p * piece;
      apply_derivative(input_activation_, reinterpret_cast<const T*>(input_) + begin,
                       reinterpret_cast<T*>(gradient_) + begin, std::min(piece, count_ - begin));
    }
  }

  ConvolutionDescriptors descriptors_;
  ActivationFunction input_activation_;
  std::size_t count_;
  ElementType input_type_;
  int threads_;
  std::byte* input_;
  std::byte* gradient_ = nullptr;
  Bridge output_gradient_;
  Bridge weights_gradient_;
  Sum weights_sum_;
  Sum bias_sum_;
  BiasGradient bias_gradient_;
  Bridge weights_;
  onednn::BoundPrimitive backward_weights_;
  onednn::BoundPrimitive backward_data_;
  std::string data_implementation_;
};

/// Of the slice of the input channels that the ranks have of a convolution, this one has nothing; but it knows the
/// bias.
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
