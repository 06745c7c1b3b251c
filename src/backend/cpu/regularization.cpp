// See regularization.hpp. Padding in the layouts of weights is zero, so it adds nothing.
#include "backend/cpu/regularization.hpp"

namespace lockstep {

void add_penalty_gradient(const Regularizer& regularizer, const float* weights, const float* g, std::size_t count,
                          float* sum) {
  run_vectorized([=, l1 = static_cast<float>(regularizer.l1), l2 = static_cast<float>(2 * regularizer.l2)] {
    for (std::size_t i = 0; i < count; ++i) {
      sum[i] = g[i] + penalty_derivative(l1, l2, weights[i]);
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
