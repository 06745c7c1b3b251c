// Keras' descriptions of Functional models: a list of layers. Each layer names the layers that feed it.
#pragma once

#include "checkpoint/keras/config_reader.hpp"

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep {

/// Returns the entries of `layers` from the InputLayer to the output. `config` is the model's. Reads both forms of
/// inbound_nodes: Keras 2's lists and Keras 3's call arguments. Throws DataError that names a layer unless the model is
/// a chain from one input to one output.
[[nodiscard]] std::vector<const nlohmann::json*> linearize_functional(const nlohmann::json& layers,
                                                                      ConfigReader& config, const std::string& source);

}  // namespace lockstep
