// The formulas of elementwise merges, which both the CPU and the CUDA backend compile.
#pragma once

#include "core/host_device.hpp"

#include <cstdint>

namespace lockstep {

/// How a merge combines elements. One of several operands is a fold from the first to the last.
enum class MergeFunction : std::uint8_t { add, subtract, multiply, average, maximum, minimum };

/// Whether the derivatives do not depend on the operands.
[[nodiscard]] constexpr bool is_linear(MergeFunction function) {
  return function == MergeFunction::add || function == MergeFunction::subtract || function == MergeFunction::average;
}

/// The value of a fold after the next operand, NaN if either is. `average` divides the sum at the end: see merge_scale.
template <MergeFunction function>
LOCKSTEP_HOST_DEVICE inline float merged(float so_far, float next) {
  switch (function) {
    case MergeFunction::add:
    case MergeFunction::average: return so_far + next;
    case MergeFunction::subtract: return so_far - next;
    case MergeFunction::multiply: return so_far * next;
    case MergeFunction::maximum: return so_far < next || next != next ? next : so_far;
    case MergeFunction::minimum: return so_far > next || next != next ? next : so_far;
  }
  return so_far;
}

/// What the fold of `count` operands is multiplied by.
[[nodiscard]] constexpr float merge_scale(MergeFunction function, int count) {
  return function == MergeFunction::average ? 1.0F / static_cast<float>(count) : 1.0F;
}

/// The derivative of the merge with respect to operand `which`, where `value_of(i)` is the value of operand i. Of equal
/// largest or smallest operands the first has all of the gradient, as in TensorFlow.
template <MergeFunction function, typename ValueOf>
LOCKSTEP_HOST_DEVICE inline float merge_derivative(int which, int count, const ValueOf& value_of) {
  if constexpr (function == MergeFunction::subtract) return which == 0 ? 1.0F : -1.0F;
  if constexpr (function == MergeFunction::multiply) {
    float product = 1;
    for (int i = 0; i < count; ++i) product *= i == which ? 1.0F : value_of(i);
    return product;
  }
  if constexpr (function == MergeFunction::maximum || function == MergeFunction::minimum) {
    int chosen = 0;
    for (int i = 1; i < count; ++i) {
      const float best = value_of(chosen);
      if (merged<function>(best, value_of(i)) != best) chosen = i;
    }
    return which == chosen ? 1.0F : 0.0F;
  }
  return merge_scale(function, count);
}

/// Calls visitor.template operator()<function>().
template <typename Visitor>
LOCKSTEP_HOST_DEVICE void visit_merge(MergeFunction function, const Visitor& visitor) {
  switch (function) {
    case MergeFunction::add: return visitor.template operator()<MergeFunction::add>();
    case MergeFunction::subtract: return visitor.template operator()<MergeFunction::subtract>();
    case MergeFunction::multiply: return visitor.template operator()<MergeFunction::multiply>();
    case MergeFunction::average: return visitor.template operator()<MergeFunction::average>();
    case MergeFunction::maximum: return visitor.template operator()<MergeFunction::maximum>();
    case MergeFunction::minimum: return visitor.template operator()<MergeFunction::minimum>();
  }
}

}  // namespace lockstep
