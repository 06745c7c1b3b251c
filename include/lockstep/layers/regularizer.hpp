// Penalties on the weights and outputs of a layer.
#pragma once

namespace lockstep {

/// Adds l1 Σ|w| + l2 Σw² over a variable to the loss, as Keras' regularizers do. Weights that are not trained add
/// nothing. An activity_regularizer adds the same sums over a layer's output, divided by the size of the batch. Make
/// one with L1(), L2() or L1L2(), or by Keras' name: "l2".
struct Regularizer {
  constexpr Regularizer() = default;
  constexpr Regularizer(double l1_, double l2_) noexcept : l1(l1_), l2(l2_) {}
  Regularizer(const char* name);  // NOLINT(google-explicit-constructor): as Keras reads "l2"

  double l1 = 0;
  double l2 = 0;

  [[nodiscard]] constexpr bool is_none() const noexcept { return l1 == 0 && l2 == 0; }
  friend constexpr bool operator==(const Regularizer&, const Regularizer&) = default;
};

/// Keras' regularizers: Dense(10, {.kernel_regularizer = L2(2e-4)}).
struct L1 : Regularizer {
  constexpr explicit L1(double l1_ = 0.01) noexcept : Regularizer(l1_, 0) {}
};
struct L2 : Regularizer {
  constexpr explicit L2(double l2_ = 0.01) noexcept : Regularizer(0, l2_) {}
};
struct L1L2 : Regularizer {
  constexpr explicit L1L2(double l1_ = 0, double l2_ = 0) noexcept : Regularizer(l1_, l2_) {}
};

}  // namespace lockstep
