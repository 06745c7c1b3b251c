// Penalties on weights and outputs: their values and derivatives.
#pragma once

#include "backend/operation_scope.hpp"
#include "core/vector_width.hpp"

#include <lockstep/layers/regularizer.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace lockstep {

/// A weight that adds a penalty to the loss.
[[nodiscard]] inline bool is_regularized(const ParameterSpec& parameter) {
  return parameter.rule == UpdateRule::optimizer && !parameter.info.regularizer.is_none();
}

/// The penalty of `count` values, in double precision, in a fixed order.
template <typename T>
[[nodiscard]] double penalty_of(const Regularizer& regularizer, const T* values, std::size_t count) {
  constexpr std::size_t lanes = 16;
  std::array<double, lanes> absolutes{};
  std::array<double, lanes> squares{};
  run_vectorized([values, count, &absolutes, &squares] {
    for (std::size_t i = 0; i < count; ++i) {
      const double x = static_cast<float>(values[i]);
      absolutes[i % lanes] += std::abs(x);
      squares[i % lanes] += x * x;
    }
  });
  return regularizer.l1 * std::accumulate(absolutes.begin(), absolutes.end(), 0.0) +
         regularizer.l2 * std::accumulate(squares.begin(), squares.end(), 0.0);
}

/// The derivative of the penalty of one value.
[[nodiscard]] inline float penalty_derivative(float l1, float twice_l2, float x) {
  const float sign = x > 0 ? 1.0F : (x < 0 ? -1.0F : 0.0F);
  return l1 * sign + twice_l2 * x;
}

/// g + the derivative of the penalty of `count` weights, in `sum`, which may be g.
void add_penalty_gradient(const Regularizer& regularizer, const float* weights, const float* g, std::size_t count,
                          float* sum);

/// The penalties of all weights of a graph.
class Penalties {
 public:
  explicit Penalties(const OperationScope& scope);

  /// What this rank adds to the sum of the losses of the examples that it counts, so that the sum over the ranks is the
  /// penalty times all examples. Each rank counts some examples of the batch, and adds the penalty of its shards for
  /// all of them.
  [[nodiscard]] double sum_over_examples(std::size_t counted, std::size_t all) const;

 private:
  struct Weights {
    Regularizer regularizer;
    const float* values = nullptr;
    std::size_t count = 0;
    bool is_sharded = false;
  };
  std::vector<Weights> weights_;
};

}  // namespace lockstep
