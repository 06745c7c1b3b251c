// Builds a model from Keras' JSON description.
#pragma once

#include <lockstep/layers/architecture.hpp>

#include <string>

namespace lockstep {

/// Parses the output of model.to_json() of Keras 2 or Keras 3: a Sequential or a Functional model. Throws DataError,
/// whose message begins with `source`, for malformed text and for each class or option that Lockstep lacks; the message
/// names it.
[[nodiscard]] Architecture model_from_json(const std::string& text, const std::string& source = "model JSON");

}  // namespace lockstep
