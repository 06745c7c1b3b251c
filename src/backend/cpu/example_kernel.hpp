// The base of kernels that compute one example after the other, forward and backward.
#pragma once

#include "backend/cpu/activation.hpp"
#include "backend/cpu/kernel.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lockstep {

template <typename T>
class ExampleKernel : public Kernel {
 public:
  explicit ExampleKernel(const KernelScope& scope)
      : operation_(scope.operation),
        input_(scope.input()),
        output_(scope.output()),
        first_example_(scope.first_example),
        num_examples_(static_cast<std::int64_t>(scope.num_examples)),
        threads_(scope.threads),
        x_(scope.value<T>(operation_.input)),
        y_(scope.value<T>(operation_.output)),
        x_gradient_(operation_.input_gradient ? scope.gradient<T>(operation_.input) : nullptr),
        y_gradient_(scope.gradient<T>(operation_.output)) {}

  void run(const StepContext& context) override {
    const std::int64_t in = input_.elements();
    const std::int64_t out = output_.elements();
    const bool backward = is_backward(operation_);
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::int64_t example = 0; example < num_examples_; ++example) {
      const T* const x = x_ + example * in;
      if (!backward) {
        run_forward(example, context, x, y_ + example * out);
        continue;
      }
      T* const x_gradient = x_gradient_ == nullptr ? nullptr : x_gradient_ + example * in;
      run_backward(example, context, {x, y_ + example * out, y_gradient_ + example * out, x_gradient});
      if (x_gradient != nullptr) {
        apply_derivative(operation_.input_activation, x, x_gradient, static_cast<std::size_t>(in));
      }
    }
  }

 protected:
  /// One example's values and gradients.
  struct Backward {
    const T* x;
    const T* y;
    const T* y_gradient;
    T* x_gradient;  ///< null if nothing needs it, which happens only for operations with weights
  };

  virtual void run_forward(std::int64_t example, const StepContext& context, const T* x, T* y) = 0;
  /// Writes x_gradient, without the derivative of an activation that produced x.
  virtual void run_backward(std::int64_t example, const StepContext& context, const Backward& at) = 0;

  [[nodiscard]] const Operation& operation() const { return operation_; }
  [[nodiscard]] const TensorSpec& input() const { return input_; }
  [[nodiscard]] const TensorSpec& output() const { return output_; }
  [[nodiscard]] std::int64_t num_examples() const { return num_examples_; }
  /// The index of an example in the global batch.
  [[nodiscard]] std::uint32_t batch_index(std::int64_t example, const StepContext& context) const {
    return static_cast<std::uint32_t>(context.batch_offset + first_example_ + static_cast<std::size_t>(example));
  }

 private:
  Operation operation_;
  const TensorSpec& input_;
  const TensorSpec& output_;
  std::size_t first_example_;
  std::int64_t num_examples_;
  int threads_;
  const T* x_;
  T* y_;
  T* x_gradient_;
  const T* y_gradient_;
};

/// Makes KernelOf<T>, where T is the output's element type.
template <template <typename> typename KernelOf>
[[nodiscard]] std::unique_ptr<Kernel> make_for_type(const KernelScope& scope) {
  return with_type(scope.output(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<KernelOf<decltype(zero)>>(scope);
  });
}

}  // namespace lockstep
