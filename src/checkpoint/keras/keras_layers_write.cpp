// Writes layers as Keras' JSON. Keras refuses unknown keys, so this writes only keys that every version from tf_keras 2
// to Keras 3.15 accepts.
#include "checkpoint/keras/field_writer.hpp"
#include "checkpoint/keras/keras_config.hpp"
#include "checkpoint/keras/keras_functional.hpp"
#include "checkpoint/keras/ordered_json.hpp"
#include "layers/layer_registry.hpp"

#include <nlohmann/json.hpp>
#include <cstddef>
#include <span>
#include <string>
#include <variant>

namespace lockstep {
namespace {

using json = nlohmann::ordered_json;

json to_json(const Architecture& architecture, const std::string& name, Ends ends);

json to_json(const LayerInfo& info) {
  if (const auto* nested = std::get_if<NestedModel>(&info.layer)) {
    return to_json(*nested->model, info.name, Ends::of_nested_model);
  }
  json config{{"name", info.name}};
  if (takes_trainable(info.layer)) config["trainable"] = is_trainable(info.layer);
  config["dtype"] = info.precision == Precision::mixed_bfloat16 ? "mixed_bfloat16" : "float32";
  const FieldWriter write(config);
  std::visit([&]<typename L>(const L& layer) { LayerTraits<L>::fields(write, layer); }, info.layer);
  return {{"class_name", info.class_name}, {"config", config}};
}

json to_json(const Architecture& architecture, const std::string& name, Ends ends) {
  json layers = json::array();
  for (const LayerInfo& layer : architecture.layers()) layers.push_back(to_json(layer));
  json config{{"name", name}, {"layers", layers}};
  if (architecture.is_sequential()) return {{"class_name", "Sequential"}, {"config", config}};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    config["layers"][i]["name"] = architecture.layers()[i].name;
    config["layers"][i]["inbound_nodes"] = inbound_nodes_of(architecture, static_cast<int>(i));
  }
  config["input_layers"] = ends_to_json(architecture, architecture.inputs(), ends);
  config["output_layers"] = ends_to_json(architecture, architecture.outputs(), ends);
  return {{"class_name", "Functional"}, {"config", config}};
}

/// The layers without names, and their calls unless each reads the layer before it.
json without_names(const Architecture& architecture) {
  json layers = json::array();
  for (const LayerInfo& layer : architecture.layers()) {
    const auto* nested = std::get_if<NestedModel>(&layer.layer);
    layers.push_back(nested == nullptr ? to_json(layer) : json{{"config", {{"model", without_names(*nested->model)}}}});
    layers.back()["config"].erase("name");
  }
  if (architecture.is_chain()) return layers;
  json calls = json::array();
  for (const LayerCall& call : architecture.calls()) calls.push_back({call.layer, call.inputs});
  return {{"layers", layers}, {"calls", calls}, {"outputs", architecture.outputs()}};
}

}  // namespace

std::string layers_to_json(const Architecture& architecture) { return dump_json(without_names(architecture)); }

std::span<const LayerInfo> layers_with_groups(const Architecture& architecture) {
  return std::span(architecture.layers()).subspan(architecture.is_sequential() ? 1 : 0);
}

std::string architecture_to_json(const Architecture& architecture) {
  return dump_json(to_json(architecture, architecture.name(), Ends::of_whole_model));
}

}  // namespace lockstep
