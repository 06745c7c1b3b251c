// Operations of keras.ops in Keras' descriptions of Functional models: x + 3 and keras.ops.relu(x) are entries of the
// list of layers. Each becomes the layer that computes the same.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

/// The list of a model's layers with a layer in place of each operation: Rescaling where a number is added or
/// multiplied, Add, Multiply and the like for two tensors, Activation for functions. Names and connections stay.
/// Throws DataError, naming the operation, if no layer computes it.
[[nodiscard]] nlohmann::json operations_as_layers(const nlohmann::json& layers, const std::string& source);

}  // namespace lockstep
