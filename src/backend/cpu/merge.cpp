// Merges of several tensors, and the sum of the gradients of a tensor's uses. A merge broadcasts operands: along an
// axis where an operand has one element, it is repeated.
#include "backend/cpu/activation.hpp"
#include "backend/cpu/kernel.hpp"
#include "core/vector_width.hpp"
#include "layers/merge_functions.hpp"

#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

namespace {

/// Calls visit(offset, count) for parts of an example that stay in the first-level cache from one pass to the next.
template <typename Visit>
void for_each_part(std::int64_t begin, std::int64_t elements, const Visit& visit) {
  constexpr std::int64_t part = 2048;
  for (std::int64_t at = 0; at < elements; at += part) visit(begin + at, std::min(part, elements - at));
}

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
      for_each_part(example * elements_, elements_, [&](std::int64_t at, std::int64_t size) {
        visit_merge(operation_.merge, [&]<MergeFunction function>() {
          if (backward) {
            run_backward<function>(at, size);
          } else {
            run_forward<function>(at, size);
          }
        });
      });
    }
  }

 private:
  template <MergeFunction function>
  void run_forward(std::int64_t at, std::int64_t size) const {
    T* const y = y_ + at;
    if (x_.size() == 1) std::copy_n(x_.front() + at, size, y);
    const T* so_far = x_.front() + at;
    for (std::size_t k = 1; k < x_.size(); ++k) {
      const T* const x = x_[k] + at;
      run_vectorized([=] {
        for (std::int64_t i = 0; i < size; ++i) {
          y[i] = merged<function>(static_cast<float>(so_far[i]), static_cast<float>(x[i]));
        }
      });
      so_far = y;
    }
    const float scale = merge_scale(function, static_cast<int>(x_.size()));
    if (scale != 1.0F) {
      for (std::int64_t i = 0; i < size; ++i) y[i] = static_cast<float>(y[i]) * scale;
    }
    apply_activation(operation_.activation, y, static_cast<std::size_t>(size));
  }

  template <MergeFunction function>
  void run_backward(std::int64_t at, std::int64_t size) const {
    const T* const y_gradient = y_gradient_ + at;
    const T* const* const operands = x_.data();
    const auto count = static_cast<int>(x_.size());
    for (int k = 0; k < count; ++k) {
      if (x_gradients_[k] == nullptr) continue;
      T* const gradient = x_gradients_[k] + at;
      run_vectorized([=] {
        for (std::int64_t i = 0; i < size; ++i) {
          const auto value_of = [&](int operand) { return static_cast<float>(operands[operand][at + i]); };
          gradient[i] = static_cast<float>(y_gradient[i]) * merge_derivative<function>(k, count, value_of);
        }
      });
      apply_derivative(operation_.operands[k].activation, x_[k] + at, gradient, static_cast<std::size_t>(size));
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

/// A merge whose operands have several shapes. All have the output's layout.
template <typename T>
class BroadcastKernel final : public Kernel {
 public:
  explicit BroadcastKernel(const KernelScope& scope)
      : operation_(scope.operation),
        output_(scope.output()),
        num_examples_(static_cast<std::int64_t>(scope.num_examples)),
        threads_(scope.threads),
        y_(scope.value<T>(operation_.output)),
        y_gradient_(scope.gradient<T>(operation_.output)) {
    std::int64_t largest = 0;
    for (const Operand& operand : operation_.operands) {
      const TensorSpec& tensor = scope.graph.tensors[operand.tensor];
      // Operands of one pixel lie the same way in every layout. Those of one channel have a block of their own.
      const std::int64_t block = tensor.channels == 1 ? 1 : std::min(output_.block(), tensor.channels);
      Source source{.x = scope.value<T>(operand.tensor),
                    .x_gradient = operand.needs_gradient ? scope.gradient<T>(operand.tensor) : nullptr,
                    .elements = tensor.elements(),
                    .activation = operand.activation};
      source.plane_stride = tensor.channels == 1 ? 0 : tensor.height * tensor.width * block;
      source.row_stride = tensor.height == 1 ? 0 : tensor.width * block;
      source.column_stride = tensor.width == 1 ? 0 : block;
      source.channel_stride = tensor.channels == 1 ? 0 : 1;
      largest = std::max(largest, source.elements);
      sources_.push_back(source);
    }
    if (is_backward(operation_)) sums_.resize(static_cast<std::size_t>(largest * threads_));
    largest_ = largest;
  }

  void run(const StepContext& /*context*/) override {
    const bool backward = is_backward(operation_);
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::int64_t example = 0; example < num_examples_; ++example) {
      visit_merge(operation_.merge, [&]<MergeFunction function>() {
        if (!backward) return run_forward<function>(example);
        for (std::size_t k = 0; k < sources_.size(); ++k) {
          if (sources_[k].x_gradient != nullptr) run_backward<function>(example, static_cast<int>(k));
        }
      });
    }
  }

 private:
  struct Source {
    const T* x = nullptr;
    T* x_gradient = nullptr;  ///< null if nothing needs it
    std::int64_t elements = 0;
    ActivationFunction activation = ActivationFunction::linear;  ///< fused into x
    // In elements of the operand, for a step of one in the output. 0 where the operand is repeated.
    std::int64_t plane_stride = 0;
    std::int64_t row_stride = 0;
    std::int64_t column_stride = 0;
    std::int64_t channel_stride = 0;
  };

  /// A pixel of one block of channels of the output.
  struct Pixel {
    std::int64_t plane, row, column;
  };

  /// Calls visit(offset in the output's example, pixel) in the order of memory.
  template <typename Visit>
  void for_each_pixel(const Visit& visit) const {
    std::int64_t at = 0;
    for (std::int64_t plane = 0; plane < output_.channels / output_.block(); ++plane) {
      for (std::int64_t row = 0; row < output_.height; ++row) {
        for (std::int64_t column = 0; column < output_.width; ++column, at += output_.block()) {
          visit(at, Pixel{plane, row, column});
        }
      }
    }
  }

  static std::int64_t offset_of(const Source& source, const Pixel& pixel) {
    return pixel.plane * source.plane_stride + pixel.row * source.row_stride + pixel.column * source.column_stride;
  }

  template <MergeFunction function>
  void run_forward(std::int64_t example) const {
    T* const y = y_ + example * output_.elements();
    const std::int64_t block = output_.block();
    const float scale = merge_scale(function, static_cast<int>(sources_.size()));
    for_each_pixel([&](std::int64_t at, const Pixel& pixel) {
      T* const to = y + at;
      for (std::size_t k = 0; k < sources_.size(); ++k) {
        const Source& source = sources_[k];
        const T* const x = source.x + example * source.elements + offset_of(source, pixel);
        const std::int64_t stride = source.channel_stride;
        if (k == 0) {
          for (std::int64_t c = 0; c < block; ++c) to[c] = x[c * stride];
        } else if (stride == 1) {
          for (std::int64_t c = 0; c < block; ++c) {
            to[c] = merged<function>(static_cast<float>(to[c]), static_cast<float>(x[c]));
          }
        } else {
          for (std::int64_t c = 0; c < block; ++c) {
            to[c] = merged<function>(static_cast<float>(to[c]), static_cast<float>(x[0]));
          }
        }
      }
      if (scale != 1.0F) {
        for (std::int64_t c = 0; c < block; ++c) to[c] = static_cast<float>(to[c]) * scale;
      }
    });
    apply_activation(operation_.activation, y, static_cast<std::size_t>(output_.elements()));
  }

  /// Adds what each element of the output contributes to the gradient of operand k, in the order of the output.
  template <MergeFunction function>
  void run_backward(std::int64_t example, int k) {
    const Source& source = sources_[static_cast<std::size_t>(k)];
    const auto count = static_cast<int>(sources_.size());
    float* const sums = sums_.data() + omp_get_thread_num() * largest_;
    std::fill_n(sums, source.elements, 0.0F);
    const T* const y_gradient = y_gradient_ + example * output_.elements();
    const std::int64_t block = output_.block();
    for_each_pixel([&](std::int64_t at, const Pixel& pixel) {
      float* const sum = sums + offset_of(source, pixel);
      for (std::int64_t c = 0; c < block; ++c) {
        const auto value_of = [&](int operand) {
          const Source& other = sources_[static_cast<std::size_t>(operand)];
          return static_cast<float>(
              other.x[example * other.elements + offset_of(other, pixel) + c * other.channel_stride]);
        };
        sum[c * source.channel_stride] +=
            static_cast<float>(y_gradient[at + c]) * merge_derivative<function>(k, count, value_of);
      }
    });
    T* const gradient = source.x_gradient + example * source.elements;
    std::copy_n(sums, source.elements, gradient);
    apply_derivative(source.activation, source.x + example * source.elements, gradient,
                     static_cast<std::size_t>(source.elements));
  }

  Operation operation_;
  const TensorSpec& output_;
  std::int64_t num_examples_;
  int threads_;
  T* y_;
  const T* y_gradient_;
  std::vector<Source> sources_;
  std::int64_t largest_ = 0;  ///< elements of an operand
  std::vector<float> sums_;   ///< of one operand's example, by thread
};

bool broadcasts(const KernelScope& scope) {
  return std::ranges::any_of(scope.operation.operands, [&](const Operand& operand) {
    return scope.graph.tensors[operand.tensor].elements() != scope.output().elements();
  });
}

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
      for_each_part(example * elements_, elements_, [&](std::int64_t at, std::int64_t size) { sum(at, size); });
    }
  }

 private:
  void sum(std::int64_t at, std::int64_t size) const {
    T* const sum = sum_ + at;
    const T* so_far = gradients_.front() + at;
    if (gradients_.size() == 1 && sum != so_far) std::copy_n(so_far, size, sum);
    for (std::size_t k = 1; k < gradients_.size(); ++k) {
      const T* const gradient = gradients_[k] + at;
      run_vectorized([=] {
        for (std::int64_t i = 0; i < size; ++i) {
          sum[i] = static_cast<float>(so_far[i]) + static_cast<float>(gradient[i]);
        }
      });
      so_far = sum;
    }
    apply_derivative(activation_, x_ + at, sum, static_cast<std::size_t>(size));
  }

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
    if (broadcasts(scope)) return std::make_unique<BroadcastKernel<decltype(zero)>>(scope);
    return std::make_unique<MergeKernel<decltype(zero)>>(scope);
  });
}

std::unique_ptr<Kernel> make_sum_gradients(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<SumGradients<decltype(zero)>>(scope);
  });
}

}  // namespace lockstep
