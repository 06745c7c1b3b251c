// Backward of a layer with a kernel, on its output's gradient: first the gradients of its parameters, then that of its
// input. Both are kernels of their own, so that each has the fastest algorithm.
#pragma once

#include "backend/cuda/kernel.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::cuda {

class ProductBackward final : public Kernel {
 public:
  using Make = std::unique_ptr<Kernel> (*)(const KernelScope&);

  /// Makes the kernels that the operation needs.
  ProductBackward(const KernelScope& scope, Make make_weights_gradient, Make make_input_gradient);

  void enqueue(const StepContext& context) override;
  [[nodiscard]] std::string implementation() const override;

 private:
  cudaStream_t stream_;
  ElementType type_;  ///< of the input
  std::size_t count_;
  std::size_t channels_;
  const void* convert_from_ = nullptr;
  DeviceBuffer converted_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
};

/// What precedes the product that computes the kernel's gradient, unless a kernel does it on the way: the derivative of
/// the output's activation, in place, and the bias gradient.
class BiasGradient {
 public:
  /// `gradient`: null if there is none, or the product computes it.
  BiasGradient(const KernelScope& scope, float* gradient);

  void enqueue() const;

 private:
  cudaStream_t stream_;
  ElementType type_;
  std::size_t pixels_;
  std::size_t channels_;
  const void* output_;
  void* output_gradient_;
  ActivationFunction derived_;
  std::byte* scratch_;
  float* gradient_;
};

}  // namespace lockstep::cuda
