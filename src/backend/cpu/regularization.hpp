// Penalties on weights: their values and derivatives.
#pragma once

#include "backend/operation_scope.hpp"

#include <lockstep/layers/regularizer.hpp>

#include <cstddef>
#include <vector>

namespace lockstep {

/// A weight that adds a penalty to the loss.
[[nodiscard]] inline bool is_regularized(const ParameterSpec& parameter) {
  return parameter.rule == UpdateRule::optimizer && !parameter.info.regularizer.is_none();
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
