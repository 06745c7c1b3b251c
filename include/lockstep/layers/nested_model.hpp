// A model as a layer of another model.
#pragma once

#include <lockstep/layers/callable.hpp>

#include <memory>
#include <string>

namespace lockstep {

class Architecture;

/// A Sequential or Functional model that is called like a layer, as transfer learning does with a base model:
/// Sequential{base, Flatten(), Dense(10)}, or base(x). A model that is called twice shares its weights.
struct NestedModel {
  NestedModel(const Architecture& model_);  // NOLINT(google-explicit-constructor): as in Keras, a model is a layer

  std::shared_ptr<const Architecture> model;  ///< never null
  std::string name;                           ///< the model's, unless it is automatic
  bool trainable = true;  ///< Keras' flag of the model itself; what is trained follows from those of its layers
};

}  // namespace lockstep
