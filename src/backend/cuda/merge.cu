// Merges of several tensors, and the sum of the gradients of a tensor's uses.
#include "backend/cuda/kernel.hpp"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/merge_functors.hpp"

#include <memory>
#include <string>
#include <vector>

namespace lockstep::cuda {

namespace {

/// Throws UsageError if an operation reads more tensors than a kernel takes.
template <typename T>
Pointers<const T*> pointers_of(const KernelScope& scope, const T* (*pointer_to)(const KernelScope&, int tensor)) {
  const std::vector<Operand>& operands = scope.operation.operands;
  if (operands.size() > static_cast<std::size_t>(max_operands)) {
    // Not fmt::format: nvcc does not compile its check of the format.
    throw UsageError("layer '" + scope.layer().name + "' reads " + std::to_string(operands.size()) +
                     " tensors, but at most " + std::to_string(max_operands) + " are supported on GPUs");
  }
  Pointers<const T*> pointers;
  for (const Operand& operand : operands) pointers.at[pointers.count++] = pointer_to(scope, operand.tensor);
  return pointers;
}

template <typename T>
const T* value_of(const KernelScope& scope, int tensor) {
  return scope.value<T>(tensor);
}

template <typename T>
const T* gradient_of(const KernelScope& scope, int tensor) {
  return scope.gradient<T>(tensor);
}

template <typename T>
class MergeKernel final : public Kernel {
 public:
  explicit MergeKernel(const KernelScope& scope)
      : stream_(scope.cuda_context.stream()),
        operation_(scope.operation),
        count_(scope.count(scope.output())),
        x_(pointers_of<T>(scope, &value_of<T>)),
        y_(scope.value<T>(scope.operation.output)),
        y_gradient_(scope.gradient<T>(scope.operation.output)) {
    for (const Operand& operand : operation_.operands) {
      if (scope.graph.tensors[operand.tensor].elements() != scope.output().elements()) {
        refuse_layer(scope, " of tensors of different shapes");
      }
      x_gradients_.push_back(scope.gradient<T>(operand.tensor));
    }
  }

  void enqueue(const StepContext& /*context*/) override {
    visit_merge(operation_.merge, [&]<MergeFunction function>() {
      if (!is_backward(operation_)) {
        for_each(stream_, count_, Merge<function, T>{x_, y_, operation_.activation});
        return;
      }
      for (int k = 0; k < x_.count; ++k) {
        const Operand& operand = operation_.operands[k];
        if (!operand.needs_gradient) continue;
        for_each(stream_, count_, MergeGradient<function, T>{x_, y_gradient_, x_gradients_[k], k, operand.activation});
      }
    });
  }

 private:
  cudaStream_t stream_;
  Operation operation_;
  std::size_t count_;
  Pointers<const T*> x_;
  T* y_;
  const T* y_gradient_;
  std::vector<T*> x_gradients_;
};

template <typename T>
class SumGradients final : public Kernel {
 public:
  explicit SumGradients(const KernelScope& scope)
      : stream_(scope.cuda_context.stream()),
        count_(scope.count(scope.input())),
        sum_{pointers_of<T>(scope, &gradient_of<T>), scope.value<T>(scope.operation.input),
             scope.gradient<T>(scope.operation.input), scope.operation.input_activation} {}

  void enqueue(const StepContext& /*context*/) override { for_each(stream_, count_, sum_); }

 private:
  cudaStream_t stream_;
  std::size_t count_;
  GradientSum<T> sum_;
};

}  // namespace

std::unique_ptr<Kernel> make_merge(const KernelScope& scope) {
  return with_type(scope.output(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<MergeKernel<decltype(zero)>>(scope);
  });
}

std::unique_ptr<Kernel> make_sum_gradients(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<SumGradients<decltype(zero)>>(scope);
  });
}

}  // namespace lockstep::cuda
