// The kernels before and after an all-reduce of partial sums. They copy this rank's partial sum to the arena, where the
// communicator all-reduces it, and the sum back to the tensor; for outputs they also apply bias and activation.
#include "backend/cpu/bias_activation.hpp"
#include "backend/cpu/kernel.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace lockstep {

namespace {

/// Applies bias and activation to a layer's summed outputs, which have the layout of the output tensor.
class FinishPartialSum final : public Kernel {
 public:
  explicit FinishPartialSum(const KernelScope& scope)
      : bias_activation_(scope, scope.weights(*scope.operation.partial_sum)) {}

  void run(const StepContext& /*context*/) override { bias_activation_.run(); }

 private:
  BiasActivation bias_activation_;
};

/// Copies the gradient to the arena before the all-reduce, or the sum back after it.
template <typename T>
class PartialGradientSum final : public Kernel {
 public:
  explicit PartialGradientSum(const KernelScope& scope)
      : starts_(scope.operation.kind == OperationKind::start_partial_gradient_sum),
        count_(static_cast<std::int64_t>(scope.num_examples) * scope.output().elements()),
        gradient_(scope.gradient<T>(scope.operation.output)),
        partial_(scope.weights_gradient(*scope.operation.partial_sum)),
        sum_(scope.weights(*scope.operation.partial_sum)) {}

  void run(const StepContext& /*context*/) override {
    if (starts_) {
      std::copy_n(gradient_, count_, partial_);
    } else {
      std::copy_n(sum_, count_, gradient_);
    }
  }

 private:
  bool starts_;
  std::int64_t count_;
  T* gradient_;
  float* partial_;
  const float* sum_;
};

class Zeros final : public Kernel {
 public:
  explicit Zeros(void* memory, std::size_t bytes) : memory_(memory), bytes_(bytes) {}
  void run(const StepContext& /*context*/) override { std::memset(memory_, 0, bytes_); }

 private:
  void* memory_;
  std::size_t bytes_;
};

}  // namespace

std::unique_ptr<Kernel> make_finish_partial_sum(const KernelScope& scope) {
  return std::make_unique<FinishPartialSum>(scope);
}

std::unique_ptr<Kernel> make_partial_gradient_sum(const KernelScope& scope) {
  return with_type(scope.output(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<PartialGradientSum<decltype(zero)>>(scope);
  });
}

std::unique_ptr<Kernel> make_empty_shard(const KernelScope& scope) {
  const Operation& operation = scope.operation;
  if (traits_of(operation).has_kernel && operation.partial_sum) {
    return std::make_unique<Zeros>(
        scope.weights_gradient(*operation.partial_sum),
        scope.num_examples * static_cast<std::size_t>(scope.output().elements()) * sizeof(float));
  }
  const bool makes_gradient = is_backward(operation) && operation.input_gradient;
  if (!makes_gradient || scope.input().elements() == 0) return nullptr;
  return std::make_unique<Zeros>(
      scope.gradient<void>(operation.input),
      scope.num_examples * static_cast<std::size_t>(scope.input().elements()) * size_of(scope.input().type));
}

}  // namespace lockstep
