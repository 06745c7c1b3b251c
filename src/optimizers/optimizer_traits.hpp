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

  friend bool operator==(const Slot&, const Slot&) = default;
};

/// The slots of an optimizer in the order of the update rule's parameters.
struct Slots {
  std::vector<Slot> slots;
  bool interleaved = false;  ///< in files: true: ordered by weight, then slot; false: by slot, then weight

  friend bool operator==(const Slots&, const Slots&) = default;
};

/// The values from which a step's update rule is made.
struct StepTime {
  double learning_rate = 0;
  double t = 1;  ///< the step's number, from 1
};

/// For each optimizer:
///   class_name    Keras' class
///   object_name   Keras' name of the object, the prefix of its variables' names
///   fields        the fields beside learning rate and clipping, in the order of Keras' files (see core/fields.hpp)
///   slots         its Slots
///   update        the step's update rule: a struct, or a std::variant of structs where fields choose between several
///
/// An update rule holds the step's scalars, computed in double precision and rounded to float. It declares `num_slots`
/// and updates one weight: rule(w, g, slots...), with references to the weight and its slots. Both backends compile it.
/// Changing the order of its operations changes the bits of results.
template <typename Optimizer>
struct OptimizerTraits;

}  // namespace lockstep
