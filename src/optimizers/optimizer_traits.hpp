// The traits that the file of each optimizer declares. Everything that differs between optimizers is a member of
// OptimizerTraits<T>; code for all optimizers uses only these. A missing member does not compile.
#pragma once

#include "core/fields.hpp"
#include "core/host_device.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep {

/// One float of state per trainable weight.
struct Slot {
  std::string_view name;  ///< the suffix of the variable's name in Keras' files
  float initial_value = 0;
  /// In files: whether this slot of a weight follows the slot before it of the same weight. Otherwise all weights'
  /// slots of one kind stand together.
  bool is_interleaved = false;

  friend bool operator==(const Slot&, const Slot&) = default;
};

/// The slots of an optimizer in the order of the update rule's parameters.
using Slots = std::vector<Slot>;

/// The values from which a step's update rule is made.
struct StepTime {
  double learning_rate = 0;
  double t = 1;  ///< the step's number, from 1
};

/// For each optimizer:
///   class_name    Keras' class
///   object_name   Keras' name of the object, the prefix of its variables' names
///   fields        the fields that not all optimizers have, in the order of Keras' files (see core/fields.hpp)
///   slots         its Slots
///   update        the step's update rule: a struct, or a std::variant of structs where fields choose between several
/// Optional:
///   decays_weights         the update rule takes care of weight_decay, and `fields` visits it
///   is_additive            gradients that are added up before the rule or by it give the same weights
///   last_variable(o, t)    a number that Keras' files hold after the slots after t steps
///
/// An update rule holds the step's scalars, computed in double precision and rounded to float. It declares `num_slots`
/// and updates one weight: rule(w, g, slots...), with references to the weight and its slots. Both backends compile it.
/// Changing the order of its operations changes the bits of results. With `ignores_zero_gradients`, a zero gradient
/// changes neither the weight nor its slots, so rows of an Embedding that no example reads are skipped.
template <typename Optimizer>
struct OptimizerTraits;

}  // namespace lockstep
