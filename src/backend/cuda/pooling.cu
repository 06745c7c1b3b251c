// Pooling on kernels of our own: backward is pooling and the activation before it in one pass, and sums have a fixed
// order.
#include "backend/cuda/kernel.hpp"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/windows.hpp"
#include "nn/window.hpp"

#include <memory>

namespace lockstep::cuda {

namespace {

Axis axis_of(std::int64_t input, int kernel, int stride, Padding padding) {
  const Window window{.input = input, .kernel = kernel, .stride = stride, .padding = padding};
  return {static_cast<int>(input), static_cast<int>(window.output()), kernel, stride,
          static_cast<int>(window.pad_before())};
}

Pooling pooling_of(const KernelScope& scope) {
  const TensorSpec& x = scope.input();
  const auto of = [&](const auto& layer) {
    return Pooling{axis_of(x.height, layer.pool_size.height, layer.strides.height, layer.padding),
                   axis_of(x.width, layer.pool_size.width, layer.strides.width, layer.padding),
                   static_cast<int>(x.channels)};
  };
  if (const auto* max = std::get_if<MaxPooling2D>(&scope.layer().layer)) return of(*max);
  if (const auto* average = std::get_if<AveragePooling2D>(&scope.layer().layer)) return of(*average);
  const auto height = static_cast<int>(x.height);
  const auto width = static_cast<int>(x.width);
  return {axis_of(height, height, height, Padding::valid), axis_of(width, width, width, Padding::valid),
          static_cast<int>(x.channels)};
}

template <typename T>
class PoolingKernel final : public Kernel {
 public:
  explicit PoolingKernel(const KernelScope& scope)
      : stream_(scope.tools.stream()),
        kind_(scope.operation.kind),
        shape_(pooling_of(scope)),
        x_count_(scope.count(scope.input())),
        y_count_(scope.count(scope.output())),
        input_function_(scope.operation.input_activation),
        x_(scope.value<T>(scope.operation.input)),
        y_(scope.value<T>(scope.operation.output)),
        x_gradient_(scope.gradient<T>(scope.operation.input)),
        y_gradient_(scope.gradient<T>(scope.operation.output)),
        winners_(scope.notes<std::uint8_t>(scope.operation.output)) {
    const bool max = kind_ == OperationKind::max_pooling || kind_ == OperationKind::max_pooling_backward;
    if (max && shape_.rows.kernel * shape_.columns.kernel > nobody) {
      throw UsageError("layer '" + scope.layer().name + "' pools more than " + std::to_string(nobody) +
                       " cells at once; use a smaller pool_size");
    }
  }

  void enqueue(const StepContext& /*context*/) override {
    const bool relu = input_function_ == ActivationFunction::relu;
    switch (kind_) {
      case OperationKind::max_pooling: for_each(stream_, y_count_, MaxPool<T>{shape_, x_, y_, winners_, relu}); return;
      case OperationKind::max_pooling_backward:
        for_each(stream_, x_count_,
                 MaxPoolBackward<T>{shape_, x_, y_gradient_, winners_, x_gradient_,
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
  std::uint8_t* winners_;
};

}  // namespace

std::unique_ptr<Kernel> make_pooling(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<PoolingKernel<decltype(zero)>>(scope);
  });
}

}  // namespace lockstep::cuda
