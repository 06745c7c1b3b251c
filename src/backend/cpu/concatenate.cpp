// Concatenation of tensors along an axis. The output consists of rows, each with a part of every operand: all pixels
// in blocked layouts and along the first axis, one pixel along the channels of channels last.
#include "backend/cpu/activation.hpp"
#include "backend/cpu/kernel.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

namespace {

template <typename T>
class ConcatenateKernel final : public Kernel {
 public:
  explicit ConcatenateKernel(const KernelScope& scope)
      : operation_(scope.operation),
        elements_(scope.output().elements()),
        rows_(scope.output().is_channels_last() ? operation_.concatenated_rows : 1),
        num_examples_(static_cast<std::int64_t>(scope.num_examples)),
        threads_(scope.threads),
        y_(scope.value<T>(operation_.output)),
        y_gradient_(scope.gradient<T>(operation_.output)) {
    for (const Operand& operand : operation_.operands) {
      parts_.push_back({scope.value<T>(operand.tensor),
                        operand.needs_gradient ? scope.gradient<T>(operand.tensor) : nullptr,
                        scope.graph.tensors[operand.tensor].elements(), operand.activation});
    }
  }

  void run(const StepContext& /*context*/) override {
    const bool backward = is_backward(operation_);
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::int64_t example = 0; example < num_examples_; ++example) {
      std::int64_t column = 0;
      for (const Part& part : parts_) {
        const std::int64_t at = example * part.elements;
        const std::int64_t width = part.elements / rows_;
        if (!backward) {
          copy_rows(part.x + at, width, y_ + example * elements_ + column, elements_ / rows_, width);
        } else if (part.x_gradient != nullptr) {
          copy_rows(y_gradient_ + example * elements_ + column, elements_ / rows_, part.x_gradient + at, width, width);
          apply_derivative(part.activation, part.x + at, part.x_gradient + at, static_cast<std::size_t>(part.elements));
        }
        column += width;
      }
    }
  }

 private:
  struct Part {
    const T* x = nullptr;
    T* x_gradient = nullptr;  ///< null if nothing needs it
    std::int64_t elements = 0;
    ActivationFunction activation = ActivationFunction::linear;  ///< fused into x
  };

  void copy_rows(const T* from, std::int64_t from_stride, T* to, std::int64_t to_stride, std::int64_t width) const {
    for (std::int64_t row = 0; row < rows_; ++row, from += from_stride, to += to_stride) std::copy_n(from, width, to);
  }

  Operation operation_;
  std::int64_t elements_;  ///< per example
  std::int64_t rows_;
  std::int64_t num_examples_;
  int threads_;
  T* y_;
  const T* y_gradient_;
  std::vector<Part> parts_;
};

}  // namespace

std::unique_ptr<Kernel> make_concatenate(const KernelScope& scope) {
  return with_type(scope.output(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<ConcatenateKernel<decltype(zero)>>(scope);
  });
}

}  // namespace lockstep
