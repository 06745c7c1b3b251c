// Functors of merges, and of the sum of the gradients of a tensor's uses.
#pragma once

#include "backend/cuda/index.hpp"
#include "core/bfloat16.hpp"
#include "layers/activation_functions.hpp"
#include "layers/merge_functions.hpp"

namespace lockstep::cuda {

inline constexpr int max_operands = 16;

/// Pointers that a kernel takes by value.
template <typename Pointer>
struct Pointers {
  Pointer at[max_operands] = {};  // NOLINT(modernize-avoid-c-arrays): std::array has no device functions
  int count = 0;
};

/// y = f(merge of all x).
template <MergeFunction function, typename T>
struct Merge {
  Pointers<const T*> x;
  T* y;
  ActivationFunction activation;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    T value = x.at[0][i];
    for (int k = 1; k < x.count; ++k) {
      value = merged<function>(static_cast<float>(value), static_cast<float>(x.at[k][i]));
    }
    const float scaled = static_cast<float>(value) * merge_scale(function, x.count);
    y[i] = activate(activation, scaled);
  }
};

/// The gradient of operand `which`, times the derivative of the activation that produced it.
template <MergeFunction function, typename T>
struct MergeGradient {
  Pointers<const T*> x;
  const T* y_gradient;
  T* x_gradient;
  int which;
  ActivationFunction activation;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const auto value_of = [&](int operand) { return static_cast<float>(x.at[operand][i]); };
    const float gradient = static_cast<float>(y_gradient[i]) * merge_derivative<function>(which, x.count, value_of);
    x_gradient[i] = activation_gradient(activation, x.at[which][i], gradient);
  }
};

/// sum = (sum of all gradients) times the derivative of the activation that produced x. `sum` may be one of them.
template <typename T>
struct GradientSum {
  Pointers<const T*> gradients;
  const T* x;
  T* sum;
  ActivationFunction activation;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    T total = gradients.at[0][i];
    for (int k = 1; k < gradients.count; ++k) {
      total = static_cast<float>(total) + static_cast<float>(gradients.at[k][i]);
    }
    sum[i] = activation_gradient(activation, x[i], total);
  }
};

}  // namespace lockstep::cuda
