// Writes layers as Keras' JSON. Keras refuses unknown keys, so this writes only keys that every version from tf_keras 2
// to Keras 3.15 accepts.
#include "checkpoint/keras/field_writer.hpp"
#include "checkpoint/keras/keras_config.hpp"
#include "checkpoint/keras/ordered_json.hpp"
#include "layers/layer_registry.hpp"

#include <nlohmann/json.hpp>
#include <string>
#include <variant>

namespace lockstep {
namespace {

using json = nlohmann::ordered_json;

json to_json(const LayerInfo& info) {
  json config{{"name", info.name}};
  if (!std::holds_alternative<Input>(info.layer)) config["trainable"] = true;  // Keras' InputLayer lacks this key
  config["dtype"] = "float32";
  const FieldWriter write(config);
  std::visit([&]<typename L>(const L& layer) { LayerTraits<L>::fields(write, layer); }, info.layer);
  return {{"class_name", info.class_name}, {"config", config}};
}

}  // namespace

std::string layers_to_json(const Sequential& architecture) {
  json layers = json::array();
  for (const LayerInfo& layer : architecture.layers()) {
    layers.push_back(to_json(layer));
    layers.back()["config"].erase("name");
  }
  return dump_json(layers);
}

std::string sequential_to_json(const Sequential& architecture) {
  json layers = json::array();
  for (const LayerInfo& layer : architecture.layers()) layers.push_back(to_json(layer));
  return dump_json({{"class_name", "Sequential"}, {"config", {{"name", architecture.name()}, {"layers", layers}}}});
}

}  // namespace lockstep
