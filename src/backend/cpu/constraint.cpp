// See constraint.hpp. Norms are summed in double precision, in the order of Keras' layout.
#include "backend/cpu/constraint.hpp"

#include "layers/constraints.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {
namespace {

constexpr double keras_epsilon = 1e-7;

/// What weights of a norm are multiplied by.
double factor_of(const Constraint& constraint, double norm) {
  if (constraint.kind == Constraint::Kind::unit_norm) return 1 / (keras_epsilon + norm);
  const double bounded = std::clamp(norm, constraint.min_value, constraint.max_value);
  return (constraint.rate * bounded + (1 - constraint.rate) * norm) / (keras_epsilon + norm);
}

/// For each element of a variable, the number of its norm: its index along the axes that no norm adds up.
std::vector<std::size_t> norm_of_elements(const Constraint& constraint, const Shape& shape) {
  const std::vector<bool> is_summed = norm_axes(constraint, shape);
  std::vector<std::size_t> norms(static_cast<std::size_t>(shape.elements()));
  std::int64_t inner = shape.elements();
  for (std::size_t axis = 0; axis < shape.rank(); ++axis) {
    inner /= shape[axis];
    if (is_summed[axis]) continue;
    for (std::size_t i = 0; i < norms.size(); ++i) {
      const std::int64_t along = static_cast<std::int64_t>(i) / inner % shape[axis];
      norms[i] = norms[i] * static_cast<std::size_t>(shape[axis]) + static_cast<std::size_t>(along);
    }
  }
  return norms;
}

}  // namespace

void apply_constraint(const Constraint& constraint, const Shape& shape, std::span<float> values) {
  if (constraint.kind == Constraint::Kind::non_neg) {
    for (float& value : values) value = std::max(value, 0.0F);
    return;
  }
  const std::vector<std::size_t> norms = norm_of_elements(constraint, shape);
  std::vector<double> factors(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) factors[norms[i]] += static_cast<double>(values[i]) * values[i];
  for (double& factor : factors) factor = factor_of(constraint, std::sqrt(factor));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(values[i] * factors[norms[i]]);
}

}  // namespace lockstep
