// See regularization.hpp. Padding in the layouts of weights is zero, so it adds nothing.
#include "backend/cpu/regularization.hpp"

#include "core/vector_width.hpp"

#include <array>
#include <cmath>
#include <numeric>

namespace lockstep {
namespace {

/// In double precision, in a fixed order.
double penalty_of(const Regularizer& regularizer, const float* weights, std::size_t count) {
  constexpr std::size_t lanes = 16;
  std::array<double, lanes> absolutes{};
  std::array<double, lanes> squares{};
  run_vectorized([weights, count, &absolutes, &squares] {
    for (std::size_t i = 0; i < count; ++i) {
      const double w = weights[i];
      absolutes[i % lanes] += std::abs(w);
      squares[i % lanes] += w * w;
    }
  });
  return regularizer.l1 * std::accumulate(absolutes.begin(), absolutes.end(), 0.0) +
         regularizer.l2 * std::accumulate(squares.begin(), squares.end(), 0.0);
}

}  // namespace

void add_penalty_gradient(const Regularizer& regularizer, const float* weights, const float* g, std::size_t count,
                          float* sum) {
  run_vectorized([=, l1 = static_cast<float>(regularizer.l1), l2 = static_cast<float>(2 * regularizer.l2)] {
    for (std::size_t i = 0; i < count; ++i) {
      const float w = weights[i];
      const float sign = w > 0 ? 1.0F : (w < 0 ? -1.0F : 0.0F);
      sum[i] = g[i] + (l1 * sign + l2 * w);
    }
  });
}

Penalties::Penalties(const OperationScope& scope) {
  for (std::size_t p = 0; p < scope.graph.parameters.size(); ++p) {
    const ParameterSpec& parameter = scope.graph.parameters[p];
    if (!is_regularized(parameter)) continue;
    weights_.push_back(
        {parameter.info.regularizer, scope.weights(static_cast<int>(p)), parameter.storage, parameter.is_sharded});
  }
}

double Penalties::sum_over_examples(std::size_t counted, std::size_t all) const {
  double sum = 0;
  for (const Weights& weights : weights_) {
    sum += static_cast<double>(weights.is_sharded ? all : counted) *
           penalty_of(weights.regularizer, weights.values, weights.count);
  }
  return sum;
}

}  // namespace lockstep
