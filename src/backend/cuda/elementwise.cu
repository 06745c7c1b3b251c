// Gathers examples, and runs elementwise and per-row operations: unfused activations, Dropout, softmax.
#include "backend/cuda/elementwise_functors.hpp"
#include "backend/cuda/kernel.hpp"
#include "backend/cuda/launch.cuh"
#include "layers/regularization.hpp"

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace lockstep::cuda {

namespace {

template <typename To>
class GatherKernel final : public Kernel {
 public:
  explicit GatherKernel(const KernelScope& scope)
      : stream_(scope.cuda_context.stream()),
        count_(scope.count(scope.output())),
        elements_(static_cast<Index>(scope.output().elements())),
        arguments_(scope.arguments),
        to_(scope.value<To>(scope.operation.output)),
        input_(scope.graph.inputs[scope.operation.model_input]) {}

  void enqueue(const StepContext& context) override {
    std::visit(
        [&](const auto* inputs) {
          using From = std::remove_const_t<std::remove_pointer_t<decltype(inputs)>>;
          const float divisor = std::is_same_v<From, std::uint8_t> ? input_.byte_divisor() : 1.0F;
          for_each(stream_, count_,
                   Gather<From, To>{arguments_, to_, elements_, divisor, static_cast<float>(input_.scale),
                                    static_cast<float>(input_.offset)});
        },
        context.data.input(0));
  }

 private:
  cudaStream_t stream_;
  std::size_t count_;
  Index elements_;
  const StepArguments* arguments_;
  To* to_;
  GraphInput input_;
};

template <typename T>
class ElementwiseKernel final : public Kernel {
 public:
  explicit ElementwiseKernel(const KernelScope& scope)
      : stream_(scope.cuda_context.stream()),
        kind_(scope.operation.kind),
        count_(scope.count(scope.output())),
        num_examples_(scope.num_examples),
        elements_(static_cast<Index>(scope.output().elements())),
        channels_(static_cast<Index>(scope.output().channels)),
        function_(scope.operation.activation),
        input_function_(scope.operation.input_activation),
        layer_(static_cast<std::uint32_t>(scope.operation.layer)),
        arguments_(scope.arguments),
        x_(scope.value<T>(scope.operation.input)),
        y_(scope.value<T>(scope.operation.output)),
        x_gradient_(scope.gradient<T>(scope.operation.input)),
        y_gradient_(scope.gradient<T>(scope.operation.output)) {
    if (kind_ == OperationKind::dropout || kind_ == OperationKind::dropout_backward) {
      const DropRule rule = drop_rule(scope.layer().layer, scope.layer().input_shape);
      if (rule.dropped != 0) refuse_layer(scope);
      if (rule.noise_shape.rank() > 0) refuse_layer(scope, " that drops several elements together");
      rate_ = rule.rate;
    }
  }

  void enqueue(const StepContext& context) override {
    const Index quads = (elements_ + 3) / 4;
    switch (kind_) {
      case OperationKind::dropout:
        if (context.training) {
          for_each(stream_, num_examples_ * quads,
                   DropoutQuad<T>{arguments_, x_, y_, nullptr, elements_, quads, layer_, rate_, input_function_});
        } else {
          check(cudaMemcpyAsync(y_, x_, count_ * sizeof(T), cudaMemcpyDeviceToDevice, stream_), "cudaMemcpyAsync");
        }
        return;
      case OperationKind::dropout_backward:
        for_each(
            stream_, num_examples_ * quads,
            DropoutQuad<T>{arguments_, y_gradient_, x_gradient_, x_, elements_, quads, layer_, rate_, input_function_});
        return;
      case OperationKind::softmax:
        for_each(stream_, count_ / channels_, SoftmaxRow<T>{x_, y_, channels_, is_log()});
        return;
      case OperationKind::softmax_backward:
        for_each(stream_, count_ / channels_,
                 SoftmaxRowBackward<T>{x_, y_, y_gradient_, x_gradient_, channels_, input_function_, is_log()});
        return;
      case OperationKind::activation_backward: {
        const bool from_input = derivative_of(function_) == Derivative::from_input;
        for_each(stream_, count_,
                 ActivationGradient<T>{x_, y_gradient_, x_gradient_, input_function_,
                                       from_input ? function_ : ActivationFunction::linear});
        return;
      }
      default: for_each(stream_, count_, AddBiasActivation<T, T>{x_, y_, nullptr, channels_, function_}); return;
    }
  }

 private:
  [[nodiscard]] bool is_log() const { return function_ == activations::log_softmax; }

  cudaStream_t stream_;
  OperationKind kind_;
  std::size_t count_;
  std::size_t num_examples_;
  Index elements_;
  Index channels_;
  ActivationFunction function_;
  ActivationFunction input_function_;
  std::uint32_t layer_;
  float rate_ = 0;
  const StepArguments* arguments_;
  const T* x_;
  T* y_;
  T* x_gradient_;
  const T* y_gradient_;
};

std::unique_ptr<Kernel> make_elementwise(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<ElementwiseKernel<decltype(zero)>>(scope);
  });
}

}  // namespace

std::unique_ptr<Kernel> make_gather(const KernelScope& scope) {
  return with_type(scope.output(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<GatherKernel<decltype(zero)>>(scope);
  });
}

std::unique_ptr<Kernel> make_activation(const KernelScope& scope) { return make_elementwise(scope); }

std::unique_ptr<Kernel> make_dropout(const KernelScope& scope) { return make_elementwise(scope); }

std::unique_ptr<Kernel> make_softmax(const KernelScope& scope) { return make_elementwise(scope); }

}  // namespace lockstep::cuda
