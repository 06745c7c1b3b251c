// Merges of several tensors, and the sum of the gradients of a tensor's uses.
#include "backend/cpu/activation.hpp"
#include "backend/cpu/kernel.hpp"
#include "layers/merge_functions.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

namespace {

template <typename T>
class MergeKernel final : public Kernel {
 public:
  explicit MergeKernel(const KernelScope& scope)
      : operation_(scope.operation),
        elements_(scope.output().elements()),
        num_examples_(static_cast<std::int64_t>(scope.num_examples)),
        threads_(scope.threads),
        y_(scope.value<T>(operation_.output)),
        y_gradient_(scope.gradient<T>(operation_.output)) {
    for (const Operand& operand : operation_.operands) {
      x_.push_back(scope.value<T>(operand.tensor));
      x_gradients_.push_back(operand.needs_gradient ? scope.gradient<T>(operand.tensor) : nullptr);
    }
  }

  void run(const StepContext& /*context*/) override {
    const bool backward = is_backward(operation_);
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::int64_t example = 0; example < num_examples_; ++example) {
      visit_merge(operation_.merge, [&]<MergeFunction function>() {
        if (backward) {
          run_backward<function>(example * elements_);
        } else {
          run_forward<function>(example * elements_);
        }
      });
    }
  }

 private:
  /// One pass over the example for each operand, which stays in the cache.
  template <MergeFunction function>
  void run_forward(std::int64_t at) const {
    T* const y = y_ + at;
    std::copy_n(x_.front() + at, elements_, y);
    for (std::size_t k = 1; k < x_.size(); ++k) {
      const T* const x = x_[k] + at;
      for (std::int64_t i = 0; i < elements_; ++i) {
        y[i] = merged<function>(static_cast<float>(y[i]), static_cast<float>(x[i]));
      }
    }
    const float scale = merge_scale(function, static_cast<int>(x_.size()));
    if (scale != 1.0F) {
      for (std::int64_t i = 0; i < elements_; ++i) y[i] = static_cast<float>(y[i]) * scale;
    }
    apply_activation(operation_.activation, y, static_cast<std::size_t>(elements_));
  }

  template <MergeFunction function>
  void run_backward(std::int64_t at) const {
    const T* const y_gradient = y_gradient_ + at;
    const auto count = static_cast<int>(x_.size());
    for (int k = 0; k < count; ++k) {
      if (x_gradients_[k] == nullptr) continue;
      T* const gradient = x_gradients_[k] + at;
      for (std::int64_t i = 0; i < elements_; ++i) {
        const auto value_of = [&](int operand) { return static_cast<float>(x_[operand][at + i]); };
        gradient[i] = static_cast<float>(y_gradient[i]) * merge_derivative<function>(k, count, value_of);
      }
      apply_derivative(operation_.operands[k].activation, x_[k] + at, gradient, static_cast<std::size_t>(elements_));
    }
  }

  Operation operation_;
  std::int64_t elements_;  ///< per example
  std::int64_t num_examples_;
  int threads_;
  T* y_;
  const T* y_gradient_;
  std::vector<const T*> x_;
  std::vector<T*> x_gradients_;
};

template <typename T>
class SumGradients final : public Kernel {
 public:
  explicit SumGradients(const KernelScope& scope)
      : activation_(scope.operation.input_activation),
        elements_(scope.input().elements()),
        num_examples_(static_cast<std::int64_t>(scope.num_examples)),
        threads_(scope.threads),
        x_(scope.value<T>(scope.operation.input)),
        sum_(scope.gradient<T>(scope.operation.input)) {
    for (const Operand& use : scope.operation.operands) gradients_.push_back(scope.gradient<T>(use.tensor));
  }

  void run(const StepContext& /*context*/) override {
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::int64_t example = 0; example < num_examples_; ++example) {
      const std::int64_t at = example * elements_;
      T* const sum = sum_ + at;
      if (sum_ != gradients_.front()) std::copy_n(gradients_.front() + at, elements_, sum);
      for (std::size_t k = 1; k < gradients_.size(); ++k) {
        const T* const gradient = gradients_[k] + at;
        for (std::int64_t i = 0; i < elements_; ++i) {
          sum[i] = static_cast<float>(sum[i]) + static_cast<float>(gradient[i]);
        }
      }
      apply_derivative(activation_, x_ + at, sum, static_cast<std::size_t>(elements_));
    }
  }

 private:
  ActivationFunction activation_;
  std::int64_t elements_;  ///< per example
  std::int64_t num_examples_;
  int threads_;
  const T* x_;
  T* sum_;
  std::vector<const T*> gradients_;
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

}  // namespace lockstep
