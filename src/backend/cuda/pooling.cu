// Pooling kernels. Backward of a pooling and of the activation before it is a single pass that sums in a fixed order.
#include "backend/cuda/kernel.hpp"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/pooling_functors.hpp"

#include <memory>

namespace lockstep::cuda {

namespace {

Axis axis_of(const Window& window) {
  return {static_cast<int>(window.input), static_cast<int>(window.output()), static_cast<int>(window.kernel),
          static_cast<int>(window.stride), static_cast<int>(window.pad_before())};
}

Pooling pooling_of(const KernelScope& scope) {
  const TensorSpec& x = scope.input();
  const Windows& windows = scope.operation.windows;
  return {axis_of(windows.rows), axis_of(windows.columns), static_cast<int>(x.channels)};
}

template <typename T>
class PoolingKernel final : public Kernel {
 public:
  explicit PoolingKernel(const KernelScope& scope)
      : stream_(scope.cuda_context.stream()),
        kind_(scope.operation.kind),
        shape_(pooling_of(scope)),
        x_count_(scope.count(scope.input())),
        y_count_(scope.count(scope.output())),
        input_function_(scope.operation.input_activation),
        x_(scope.value<T>(scope.operation.input)),
        y_(scope.value<T>(scope.operation.output)),
        x_gradient_(scope.gradient<T>(scope.operation.input)),
        y_gradient_(scope.gradient<T>(scope.operation.output)),
        argmaxes_(scope.saved_for_backward<std::uint8_t>(scope.operation.output)) {
    const bool max = kind_ == OperationKind::max_pooling || kind_ == OperationKind::max_pooling_backward;
    if (max && shape_.rows.kernel * shape_.columns.kernel > no_argmax) {
      throw UsageError("layer '" + scope.layer().name + "' has a pooling window of more than " +
                       std::to_string(no_argmax) + " pixels; use a smaller pool_size");
    }
  }

  void enqueue(const StepContext& /*context*/) override {
    const bool relu = input_function_ == ActivationFunction::relu;
    switch (kind_) {
      case OperationKind::max_pooling: for_each(stream_, y_count_, MaxPool<T>{shape_, x_, y_, argmaxes_, relu}); return;
      case OperationKind::max_pooling_backward:
        for_each(stream_, x_count_,
                 MaxPoolBackward<T>{shape_, x_, y_gradient_, argmaxes_, x_gradient_,
                                    relu ? ActivationFunction::linear : input_function_});
        return;
      case OperationKind::average_pooling: for_each(stream_, y_count_, AveragePool<T>{shape_, x_, y_}); return;
      default:
        for_each(stream_, x_count_, AveragePoolBackward<T>{shape_, x_, y_gradient_, x_gradient_, input_function_});
        return;
    }
  }

 private:
  cudaStream_t stream_;
  OperationKind kind_;
  Pooling shape_;
  std::size_t x_count_;
  std::size_t y_count_;
  ActivationFunction input_function_;
  const T* x_;
  T* y_;
  T* x_gradient_;
  const T* y_gradient_;
  std::uint8_t* argmaxes_;
};

}  // namespace

std::unique_ptr<Kernel> make_max_pooling(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<PoolingKernel<decltype(zero)>>(scope);
  });
}

std::unique_ptr<Kernel> make_average_pooling(const KernelScope& scope) { return make_max_pooling(scope); }

std::unique_ptr<Kernel> make_global_max_pooling(const KernelScope& scope) { refuse_layer(scope); }

}  // namespace lockstep::cuda
