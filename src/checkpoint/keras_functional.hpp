// Functional models as Keras describes them: a list of layers, each of which names those that feed it.
#pragma once

#include "checkpoint/config_reader.hpp"

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep {

/// The entries of `layers` in the order in which they feed each other, the InputLayer first. `config` is the model's.
/// Throws DataError, naming a layer, where the model is no chain from one input to one output. Understands both forms
/// of a layer's inbound_nodes: Keras 2's lists and Keras 3's call arguments.
[[nodiscard]] std::vector<const nlohmann::json*> chain_of(const nlohmann::json& layers, ConfigReader& config,
                                                          const std::string& source);

}  // namespace lockstep
