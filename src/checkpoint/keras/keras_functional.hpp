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

/// In Keras 3 a model with a list of one output returns a list, which no layer reads. So nested models have it bare.
enum class Ends { of_whole_model, of_nested_model };

/// Keras' "inbound_nodes" of one layer, and "input_layers" or "output_layers", in the form that tf_keras and all
/// versions of Keras 3 read. Those of a model with nested ones are for Keras 3 alone, because tf_keras numbers the
/// calls of nested models differently.
[[nodiscard]] nlohmann::ordered_json inbound_nodes_of(const Architecture& architecture, int layer);
[[nodiscard]] nlohmann::ordered_json ends_to_json(const Architecture& architecture, const std::vector<int>& calls,
                                                  Ends form);

}  // namespace lockstep
