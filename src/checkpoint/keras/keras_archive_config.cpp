// The config.json of `.keras` files holds the same data as the attributes of `.h5` files, except that every object also
// names its module. This file converts between the two.
#include "checkpoint/keras/config_reader.hpp"
#include "checkpoint/keras/keras_config.hpp"
#include "core/variant_types.hpp"
#include "layers/constraints.hpp"
#include "layers/initializers.hpp"
#include "layers/layer_registry.hpp"
#include "layers/regularizers.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
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

/// The module of a class that a layer's config holds.
std::string_view module_of_object(std::string_view class_name) {
  if (std::ranges::find(regularizer_rows, class_name, &RegularizerRow::class_name) != regularizer_rows.end())
    return "keras.regularizers";
  if (std::ranges::find(constraint_rows, class_name, &ConstraintRow::class_name) != constraint_rows.end())
    return "keras.constraints";
  if (std::ranges::find(initializer_rows, class_name, &InitializerRow::class_name) != initializer_rows.end())
    return "keras.initializers";
  throw InternalError(fmt::format("no module of Keras is known for the class {}", class_name));
}

json to_archive_layer(const json& layer);

/// Functional has no public name in Keras.
json to_archive_model(const json& model) {
  json result = in_module(model.at("class_name") == "Sequential" ? "keras" : "keras.src.models.functional", model);
  for (json& layer : result["config"]["layers"]) layer = to_archive_layer(layer);
  return result;
}

/// Finds the names that keys of Keras 2 have in Keras 3.
struct NewKeys : FieldVisitor {
  std::map<std::string, std::string> found;
  void legacy(const char* key, const char* new_key, const auto& /*value*/) { found[key] = new_key; }
};

std::map<std::string, std::string> new_keys_of(const std::string& class_name) {
  NewKeys keys{{}, {{"batch_input_shape", "batch_shape"}}};
  for_each_alternative<Layer>([&]<typename L>(std::type_identity<L>) {
    if (class_name != LayerTraits<L>::class_name) return;
    const L layer = blank_layer<L>();
    LayerTraits<L>::fields(keys, layer);
  });
  return keys.found;
}

json to_archive_layer(const json& layer) {
  json result;
  if (layer.at("config").contains("layers")) {
    result = to_archive_model(layer);
  } else {
    result = in_module(module_of(layer.at("class_name").get<std::string>()), layer);
    json config = json::object();
    const std::map<std::string, std::string> new_keys = new_keys_of(layer.at("class_name").get<std::string>());
    for (const auto& [key, value] : result["config"].items()) {
      const bool is_object = value.is_object() && value.contains("class_name");
      const auto new_key = new_keys.find(key);
      config[new_key == new_keys.end() ? key : new_key->second] =
          is_object ? in_module(module_of_object(value.at("class_name").get<std::string>()), value) : value;
    }
    result["config"] = std::move(config);
  }
  for (const char* const key : {"name", "inbound_nodes"}) {  // of a Functional model's layers
    if (layer.contains(key)) result[key] = layer[key];
  }
  return result;
}

/// One loss, or one for each output.
json losses_in_module(const json& losses) {
  if (!losses.is_array()) return in_module("keras.losses", losses);
  json all = json::array();
  for (const json& loss : losses) all.push_back(in_module("keras.losses", loss));
  return all;
}

}  // namespace

std::string archive_config_to_json(const ModelData& model) {
  json result = to_archive_model(json::parse(architecture_to_json(model.architecture)));
  if (model.compile_state) {
    const json training = json::parse(training_config_to_json(*model.compile_state));
    result["compile_config"] = {{"optimizer", in_module("keras.optimizers", training.at("optimizer_config"))},
                                {"loss", losses_in_module(training.at("loss"))},
                                {"metrics", training.at("metrics")}};
    if (const json& weighted = training.at("weighted_metrics"); !weighted.is_null())
      result["compile_config"]["weighted_metrics"] = weighted;
    if (const json& weights = training.at("loss_weights"); !weights.is_null())
      result["compile_config"]["loss_weights"] = weights;
  }
  return result.dump();
}

std::optional<CompileState> archive_compile_config_from_json(const std::string& text, const std::string& source,
                                                             const DescribedOutputs& outputs,
                                                             UnsupportedCompilation unsupported) {
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
  return training_config_from_json(training.dump(), where, outputs, unsupported);
}

}  // namespace lockstep
