// Keras' descriptions of Functional models: a list of layers. Each layer names the layers that feed each of its calls.
#pragma once

#include "checkpoint/keras/config_reader.hpp"

#include <lockstep/layers/architecture.hpp>

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

/// The graph without its layers: LayerCall::layer is an index in `layers`, the list of the model's description.
/// `config` is the model's. Reads both forms of inbound_nodes: Keras 2's lists and Keras 3's call arguments. Throws
/// DataError that names a layer for a connection that cannot be, and for layers on which no output depends.
[[nodiscard]] LayerGraph read_connections(const nlohmann::json& layers, ConfigReader& config,
                                          const std::string& source);

/// Keras' "inbound_nodes" of one layer, and "input_layers" or "output_layers", in the form that tf_keras and all
/// versions of Keras 3 read.
[[nodiscard]] nlohmann::ordered_json inbound_nodes_of(const Architecture& architecture, int layer);
[[nodiscard]] nlohmann::ordered_json ends_to_json(const Architecture& architecture, const std::vector<int>& calls);

}  // namespace lockstep
