// Around a sum over ranks: a part goes to where they sum, the sum comes back with the bias and the activation that had
// to wait for it. The sum itself is the communicator's.
#include "backend/cpu/activation.hpp"
#include "backend/cpu/kernel.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep {

namespace {

/// The matrix of a Dense layer's outputs, summed, becomes the output tensor.
template <typename T>
class FinishSum final : public Kernel {
 public:
  explicit FinishSum(const KernelScope& scope)
      : activation_(scope.operation.activation),
        rows_(static_cast<std::int64_t>(scope.rows)),
        units_(scope.output().elements()),
        sum_(scope.weights(scope.operation.sum)),
        y_(scope.value<T>(scope.operation.output)) {
    if (scope.layer().parameters.size() > 1) bias_ = scope.weights(scope.operation.parameter + 1);
  }

  void run(const StepContext& /*context*/) override {
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t u = 0; u < units_; ++u) {
        y_[r * units_ + u] = sum_[r * units_ + u] + (bias_ != nullptr ? bias_[u] : 0.0F);
      }
    }
    apply_activation(activation_, y_, static_cast<std::size_t>(rows_ * units_));
  }

 private:
  ActivationFunction activation_;
  std::int64_t rows_;
  std::int64_t units_;
  const float* sum_;
  const float* bias_ = nullptr;
  T* y_;
};

template <typename T>
class ExchangeGradient final : public Kernel {
 public:
  explicit ExchangeGradient(const KernelScope& scope)
      : offers_(scope.operation.kind == OperationKind::offer_gradient),
        count_(static_cast<std::int64_t>(scope.rows) * scope.output().elements()),
        gradient_(scope.gradient<T>(scope.operation.output)),
        part_(scope.weights_gradient(scope.operation.sum)),
        sum_(scope.weights(scope.operation.sum)) {}

  void run(const StepContext& /*context*/) override {
    if (offers_) {
      std::copy_n(gradient_, count_, part_);
    } else {
      std::copy_n(sum_, count_, gradient_);
    }
  }

 private:
  bool offers_;
  std::int64_t count_;
  T* gradient_;
  float* part_;
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

std::unique_ptr<Kernel> make_exchange(const KernelScope& scope) {
  return with_type(scope.output(), [&](auto zero) -> std::unique_ptr<Kernel> {
    using T = decltype(zero);
    if (scope.operation.kind == OperationKind::finish_sum) return std::make_unique<FinishSum<T>>(scope);
    return std::make_unique<ExchangeGradient<T>>(scope);
  });
}

std::unique_ptr<Kernel> make_nothing(const KernelScope& scope) {
  const Operation& operation = scope.operation;
  if (operation.kind == OperationKind::dense && operation.sum >= 0) {
    return std::make_unique<Zeros>(scope.weights_gradient(operation.sum),
                                   scope.rows * static_cast<std::size_t>(scope.output().elements()) * sizeof(float));
  }
  const bool backward = operation.kind > OperationKind::loss && operation.input_gradient;
  if (!backward || scope.input().elements() == 0) return nullptr;
  const std::size_t size = scope.input().type == ElementType::bfloat16 ? sizeof(BFloat16) : sizeof(float);
  return std::make_unique<Zeros>(scope.gradient<void>(operation.input),
                                 scope.rows * static_cast<std::size_t>(scope.input().elements()) * size);
}

}  // namespace lockstep
