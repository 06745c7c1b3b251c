// See activation.hpp.
#include "backend/cpu/activation.hpp"

#include "backend/cpu/tensor_descriptor.hpp"
#include "core/vector_width.hpp"
#include "layers/activation_functions.hpp"

#include <type_traits>

namespace lockstep {

namespace {

/// The gradient of relu, the most common function. A bfloat16 is positive if its sign bit is clear and it is not zero.
/// This counts NaN as positive, which occurs only after training has diverged.
void mask_relu(const BFloat16* y, BFloat16* gradient, std::size_t count) {
  run_vectorized([=] {
    for (std::size_t i = 0; i < count; ++i) {
      const bool positive = static_cast<std::uint16_t>(y[i].bits - 1) < 0x7FFFU;
      gradient[i].bits = static_cast<std::uint16_t>(positive ? gradient[i].bits : 0);
    }
  });
}

template <typename T>
void apply(ActivationFunction function, T* y, std::size_t count) {
  if (function == ActivationFunction::linear) return;
  visit_activation(function.kind, [&](auto row) {
    if constexpr (decltype(row)::derivative != Derivative::none) {
      run_vectorized([=] {
        for (std::size_t i = 0; i < count; ++i) y[i] = row.value(static_cast<float>(y[i]), function);
      });
    }
  });
}

template <typename T>
void derive(ActivationFunction function, const T* v, T* gradient, std::size_t count) {
  if (function == ActivationFunction::linear) return;
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (function == ActivationFunction::relu) return mask_relu(v, gradient, count);
  }
  visit_activation(function.kind, [&](auto row) {
    if constexpr (decltype(row)::derivative != Derivative::none) {
      run_vectorized([=] {
        for (std::size_t i = 0; i < count; ++i) {
          gradient[i] = row.gradient(static_cast<float>(v[i]), static_cast<float>(gradient[i]), function);
        }
      });
    }
  });
}

}  // namespace

void apply_activation(ActivationFunction function, float* y, std::size_t count) { apply(function, y, count); }
void apply_activation(ActivationFunction function, BFloat16* y, std::size_t count) { apply(function, y, count); }

void apply_derivative(ActivationFunction function, const float* v, float* gradient, std::size_t count) {
  derive(function, v, gradient, count);
}
void apply_derivative(ActivationFunction function, const BFloat16* v, BFloat16* gradient, std::size_t count) {
  derive(function, v, gradient, count);
}

bool is_fused(ActivationFunction function) { return algorithm_of(function) != dnnl::algorithm::undef; }

UnfusedActivation::UnfusedActivation(const KernelScope& scope, bool is_fused)
    : function_(scope.operation.activation),
      type_(scope.output().type),
      values_(scope.value<void>(scope.operation.output)),
      elements_(scope.output().elements()),
      num_examples_(static_cast<std::int64_t>(scope.num_examples)),
      threads_(scope.threads) {
  if (is_fused || scope.operation.partial_sum >= 0) function_ = ActivationFunction::linear;
}

void UnfusedActivation::run() const {
  if (function_ == ActivationFunction::linear) return;
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
  for (std::int64_t example = 0; example < num_examples_; ++example) {
    const auto count = static_cast<std::size_t>(elements_);
    if (type_ == ElementType::bfloat16) {
      apply_activation(function_, static_cast<BFloat16*>(values_) + example * elements_, count);
    } else {
      apply_activation(function_, static_cast<float*>(values_) + example * elements_, count);
    }
  }
}

InputDerivative::InputDerivative(const KernelScope& scope)
    : function_(scope.operation.input_activation),
      type_(scope.input().type),
      values_(scope.value<void>(scope.operation.input)),
      gradient_(scope.operation.input_gradient ? scope.gradient<void>(scope.operation.input) : nullptr),
      count_(scope.count(scope.input())),
      threads_(scope.threads) {}

void InputDerivative::run() const {
  if (function_ == ActivationFunction::linear || gradient_ == nullptr) return;
  if (type_ == ElementType::bfloat16) {
    run_as<BFloat16>();
  } else {
    run_as<float>();
  }
}

template <typename T>
void InputDerivative::run_as() const {
  constexpr std::size_t block = 4096;
  const std::size_t blocks = (count_ + block - 1) / block;
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t begin = b * block;
    apply_derivative(function_, static_cast<const T*>(values_) + begin, static_cast<T*>(gradient_) + begin,
                     std::min(block, count_ - begin));
  }
}

}  // namespace lockstep
