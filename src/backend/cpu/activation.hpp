// Applies activation functions and their derivatives to arrays; the functions are in layers/activation_functions.hpp.
#pragma once

#include "backend/cpu/kernel.hpp"
#include "core/bfloat16.hpp"

#include <lockstep/layers/activation.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep {

/// y[i] = f(y[i]). Does nothing for linear and softmax.
void apply_activation(ActivationFunction function, float* y, std::size_t count);
void apply_activation(ActivationFunction function, BFloat16* y, std::size_t count);

/// gradient[i] *= f'(x), where v[i] is f(x), or x if the derivative is computed from the input. Does nothing for linear
/// and softmax.
void apply_derivative(ActivationFunction function, const float* v, float* gradient, std::size_t count);
void apply_derivative(ActivationFunction function, const BFloat16* v, BFloat16* gradient, std::size_t count);

/// Whether oneDNN's kernels apply this activation to their output.
[[nodiscard]] bool is_fused(ActivationFunction function);

/// Applies the activation of an operation to its output if the kernel has not.
class UnfusedActivation {
 public:
  UnfusedActivation(const KernelScope& scope, bool is_fused);
  /// Does nothing if the activation is fused, or if the kernel that finishes a partial sum applies it.
  void run() const;

 private:
  ActivationFunction function_;
  ElementType type_;
  void* values_;
  std::int64_t elements_;  ///< per example
  std::int64_t num_examples_;
  int threads_;
};

/// Multiplies the input gradient of a backward operation by the derivative of Operation::input_activation.
class InputDerivative {
 public:
  explicit InputDerivative(const KernelScope& scope);
  /// Does nothing if that activation is linear, or if nothing needs the gradient.
  void run() const;

 private:
  template <typename T>
  void run_as() const;

  ActivationFunction function_;
  ElementType type_;
  const void* values_;
  void* gradient_;
  std::size_t count_;
  int threads_;
};

}  // namespace lockstep
