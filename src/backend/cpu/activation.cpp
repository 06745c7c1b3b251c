// See activation.hpp.
#include "backend/cpu/activation.hpp"

#include "core/vectorized.hpp"

#include <cmath>

namespace lockstep {

namespace {

LOCKSTEP_VECTORIZED void mask_relu(const float* y, float* gradient, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) gradient[i] = y[i] > 0.0F ? gradient[i] : 0.0F;
}

/// In bfloat16 y > 0 is: sign clear and not zero. (A relu's output is never NaN unless the run is lost already.)
LOCKSTEP_VECTORIZED void mask_relu(const BFloat16* y, BFloat16* gradient, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const bool positive = static_cast<std::uint16_t>(y[i].bits - 1) < 0x7FFFU;
    gradient[i].bits = static_cast<std::uint16_t>(positive ? gradient[i].bits : 0);
  }
}

template <typename T>
void apply(ActivationFunction function, T* y, std::size_t count) {
  switch (function) {
    case ActivationFunction::relu:
      for (std::size_t i = 0; i < count; ++i) y[i] = static_cast<float>(y[i]) > 0.0F ? y[i] : T(0.0F);
      return;
    case ActivationFunction::sigmoid:
      for (std::size_t i = 0; i < count; ++i) y[i] = 1.0F / (1.0F + std::exp(-static_cast<float>(y[i])));
      return;
    case ActivationFunction::tanh:
      for (std::size_t i = 0; i < count; ++i) y[i] = std::tanh(static_cast<float>(y[i]));
      return;
    case ActivationFunction::linear:
    case ActivationFunction::softmax: return;
  }
}

template <typename T>
void derive(ActivationFunction function, const T* y, T* gradient, std::size_t count) {
  switch (function) {
    case ActivationFunction::relu: mask_relu(y, gradient, count); return;
    case ActivationFunction::sigmoid:
      for (std::size_t i = 0; i < count; ++i) {
        gradient[i] = static_cast<float>(gradient[i]) * static_cast<float>(y[i]) * (1.0F - static_cast<float>(y[i]));
      }
      return;
    case ActivationFunction::tanh:
      for (std::size_t i = 0; i < count; ++i) {
        gradient[i] = static_cast<float>(gradient[i]) * (1.0F - static_cast<float>(y[i]) * static_cast<float>(y[i]));
      }
      return;
    case ActivationFunction::linear:
    case ActivationFunction::softmax: return;
  }
}

}  // namespace

void apply_activation(ActivationFunction function, float* y, std::size_t count) { apply(function, y, count); }
void apply_activation(ActivationFunction function, BFloat16* y, std::size_t count) { apply(function, y, count); }

void apply_derivative(ActivationFunction function, const float* y, float* gradient, std::size_t count) {
  derive(function, y, gradient, count);
}
void apply_derivative(ActivationFunction function, const BFloat16* y, BFloat16* gradient, std::size_t count) {
  derive(function, y, gradient, count);
}

}  // namespace lockstep
