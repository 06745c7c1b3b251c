// The traits that the file of each loss declares. Everything that differs between losses is a member of LossTraits<T>;
// code for all losses uses only these. A missing member does not compile.
#pragma once

#include "core/host_device.hpp"

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep {

/// For each loss:
///   class_name            Keras' class
///   function_name         Keras' function
///   aliases               further names of the function
///   fields                Keras' keys except name and reduction (see core/fields.hpp)
///   takes_classes         whether targets are class indices; otherwise they have the output's shape
///   needs_class_vector    whether the output must be one vector of classes for each example
///   rule                  the LossRule of a loss
///   probabilities_of      for a loss with the field from_logits: the activation that turns logits into probabilities
///
/// Both backends call a rule for each example: rule(output, count, target, gradient). The example has `count` outputs.
/// target(k) is the target of output k. If gradient.is_wanted(), the rule calls gradient(k, value) with the derivative
/// by each output. It returns the loss. Changing the order of its operations changes the bits of results.
template <typename Loss>
struct LossTraits;

/// A class index as a one-hot target: 1 for the class, 0 for all others.
template <typename Index>
struct ClassTarget {
  Index expected;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE float operator()(Index k) const { return k == expected ? 1.0F : 0.0F; }
};

/// A target with a number for each output.
template <typename Index>
struct DenseTarget {
  const float* values;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE float operator()(Index k) const { return values[k]; }
};

}  // namespace lockstep
