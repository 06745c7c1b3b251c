// The config.json of `.keras` files holds the same data as the attributes of `.h5` files, except that every object also
// names its module. This file converts between the two.
#include "checkpoint/keras/config_reader.hpp"
#include "checkpoint/keras/keras_config.hpp"
#include "layers/layer_registry.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

using json = nlohmann::ordered_json;

/// {"class_name", "config"} becomes {"module", "class_name", "config", "registered_name"}.
json in_module(std::string_view module, const json& object) {
  return {{"module", module},
          {"class_name", object.at("class_name")},
          {"config", object.at("config")},
          {"registered_name", nullptr}};
}

json to_archive_layer(const json& layer);

/// Functional has no public name in Keras.
json to_archive_model(const json& model) {
  json result = in_module(model.at("class_name") == "Sequential" ? "keras" : "keras.src.models.functional", model);
  for (json& layer : result["config"]["layers"]) layer = to_archive_layer(layer);
  return result;
}

json to_archive_layer(const json& layer) {
  json result;
  if (layer.at("config").contains("layers")) {
    result = to_archive_model(layer);
  } else {
    result = in_module(module_of(layer.at("class_name").get<std::string>()), layer);
    json config = json::object();
    for (const auto& [key, value] : result["config"].items()) {
      const bool initializer = value.is_object() && value.contains("class_name");
      config[key == "batch_input_shape" ? "batch_shape" : key] =
          initializer ? in_module("keras.initializers", value) : value;
    }
    result["config"] = std::move(config);
  }
  for (const char* const key : {"name", "inbound_nodes"}) {  // of a Functional model's layers
    if (layer.contains(key)) result[key] = layer[key];
  }
  return result;
}

}  // namespace

std::string archive_config_to_json(const ModelData& model) {
  json result = to_archive_model(json::parse(architecture_to_json(model.architecture)));
  if (model.compile_state) {
    const json training = json::parse(training_config_to_json(*model.compile_state));
    result["compile_config"] = {{"optimizer", in_module("keras.optimizers", training.at("optimizer_config"))},
                                {"loss", in_module("keras.losses", training.at("loss"))},
                                {"metrics", training.at("metrics")}};
    if (const json& weighted = training.at("weighted_metrics"); !weighted.is_null())
      result["compile_config"]["weighted_metrics"] = weighted;
  }
  return result.dump();
}

std::optional<CompileState> archive_compile_config_from_json(const std::string& text, const std::string& source,
                                                             std::optional<std::int64_t> outputs) {
  const nlohmann::json document = parse_json(text, source);
  const std::string where = source + ": compile_config";
  const nlohmann::json* const found = ConfigReader(document, source).find("compile_config");
  if (found == nullptr || found->empty()) return std::nullopt;
  if (!found->is_object()) ConfigReader(document, source).fail_unsupported("compile_config");
  nlohmann::json training = *found;
  training.erase("auto_scale_loss");  // affects float16 only
  if (training.contains("optimizer")) {
    training["optimizer_config"] = std::move(training["optimizer"]);
    training.erase("optimizer");
  }
  return training_config_from_json(training.dump(), where, outputs);
}

}  // namespace lockstep
