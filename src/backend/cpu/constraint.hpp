// Constraints on weights.
#pragma once

#include <lockstep/core/shape.hpp>
#include <lockstep/layers/constraint.hpp>

#include <span>

namespace lockstep {

/// Changes the values of a variable, which are in Keras' layout, so that they satisfy the constraint.
void apply_constraint(const Constraint& constraint, const Shape& shape, std::span<float> values);

}  // namespace lockstep
