// Lockstep's own convolutions, which compete with cuDNN's. Each factory makes the kernel of one product.
#pragma once

#include "backend/cuda/direct_convolution_functors.hpp"
#include "backend/cuda/kernel.hpp"

#include <memory>

namespace lockstep::cuda {

[[nodiscard]] ConvolutionShape shape_of(const KernelScope& scope);

/// The values of the layer's kernel in the input's type, float or BFloat16.
template <typename T>
[[nodiscard]] const T* kernel_of(const KernelScope& scope) {
  const int parameter = scope.operation.parameter;
  if (scope.input().type == ElementType::bfloat16) return reinterpret_cast<const T*>(scope.low_precision(parameter));
  return reinterpret_cast<const T*>(scope.weights(parameter));
}

/// The bias and its gradient: null if the layer has none.
[[nodiscard]] inline const float* bias_of(const KernelScope& scope) {
  return scope.has_bias() ? scope.weights(scope.operation.parameter + 1) : nullptr;
}
[[nodiscard]] inline float* bias_gradient_of(const KernelScope& scope) {
  return scope.has_bias() ? scope.weights_gradient(scope.operation.parameter + 1) : nullptr;
}

// Any convolution, slowly.
[[nodiscard]] std::unique_ptr<Kernel> make_direct_convolution(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_direct_weights_gradient(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_direct_input_gradient(const KernelScope& scope);

// Convolutions of images with one channel and square kernels of 3 x 3 or 5 x 5 taps.
[[nodiscard]] bool is_one_channel(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_one_channel_convolution(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_one_channel_weights_gradient(const KernelScope& scope);

}  // namespace lockstep::cuda
