// The penalty of a layer's output: l1 times the sum of absolute values plus l2 times the sum of squares, for each
// example.
#include "backend/cpu/activation.hpp"
#include "backend/cpu/kernel.hpp"
#include "backend/cpu/regularization.hpp"
#include "layers/layer_registry.hpp"

#include <cstddef>
#include <cstdint>

namespace lockstep {

namespace {

template <typename T>
class ActivityPenaltyKernel final : public Kernel {
 public:
  explicit ActivityPenaltyKernel(const KernelScope& scope)
      : is_backward_(scope.is_backward()),
        regularizer_(activity_regularizer_of(scope.layer().layer)),
        elements_(scope.input().elements()),
        num_examples_(static_cast<std::int64_t>(scope.num_examples)),
        threads_(scope.threads),
        input_activation_(scope.operation.input_activation),
        x_(scope.value<T>(scope.operation.input)),
        x_gradient_(scope.gradient<T>(scope.operation.input)),
        penalty_(scope.value<float>(scope.operation.output)),
        penalty_gradient_(scope.gradient<float>(scope.operation.output)) {}

  void run(const StepContext& /*context*/) override {
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::int64_t example = 0; example < num_examples_; ++example) {
      if (is_backward_) {
        run_backward(example);
      } else {
        penalty_[example] =
            static_cast<float>(penalty_of(regularizer_, x_ + example * elements_, static_cast<std::size_t>(elements_)));
      }
    }
  }

 private:
  void run_backward(std::int64_t example) const {
    const T* const x = x_ + example * elements_;
    T* const gradient = x_gradient_ + example * elements_;
    const auto l1 = static_cast<float>(regularizer_.l1);
    const auto twice_l2 = static_cast<float>(2 * regularizer_.l2);
    for (std::int64_t i = 0; i < elements_; ++i) {
      gradient[i] = penalty_gradient_[example] * penalty_derivative(l1, twice_l2, static_cast<float>(x[i]));
    }
    apply_derivative(input_activation_, x, gradient, static_cast<std::size_t>(elements_));
  }

  bool is_backward_;
  Regularizer regularizer_;
  std::int64_t elements_;  ///< per example
  std::int64_t num_examples_;
  int threads_;
  ActivationFunction input_activation_;
  const T* x_;
  T* x_gradient_;
  float* penalty_;
  const float* penalty_gradient_;
};

}  // namespace

std::unique_ptr<Kernel> make_activity_penalty(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<ActivityPenaltyKernel<decltype(zero)>>(scope);
  });
}

}  // namespace lockstep
