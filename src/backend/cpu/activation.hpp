// Activations and their derivatives over ranges, for kernels of ours.
#pragma once

#include "core/bfloat16.hpp"

#include <lockstep/nn/activation.hpp>

#include <cstddef>

namespace lockstep {

/// y[i] = f(y[i])
void apply_activation(ActivationFunction function, float* y, std::size_t count);
void apply_activation(ActivationFunction function, BFloat16* y, std::size_t count);

/// gradient[i] *= f'(x) where y[i] = f(x). relu, sigmoid and tanh give the derivative from y; linear does nothing.
void apply_derivative(ActivationFunction function, const float* y, float* gradient, std::size_t count);
void apply_derivative(ActivationFunction function, const BFloat16* y, BFloat16* gradient, std::size_t count);

}  // namespace lockstep
