// Reads layers from the JSON of Keras 2 (tf_keras) and Keras 3. The traits of each layer declare its fields. An option
// that Lockstep lacks is refused by name unless it is switched off.
#include "checkpoint/keras/field_reader.hpp"
#include "checkpoint/keras/keras_config.hpp"
#include "checkpoint/keras/keras_functional.hpp"
#include "checkpoint/keras/keras_operations.hpp"
#include "core/join_words.hpp"
#include "core/variant_types.hpp"
#include "layers/layer_registry.hpp"

#include <lockstep/checkpoint/model_from_json.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

using nlohmann::json;

/// Reads a layer's `dtype`. That of an Input, which holds numbers of any type, is a field of its own.
Precision read_precision(ConfigReader& config, const std::string& class_name) {
  const std::string dtype = config.dtype("dtype");
  const bool is_input = class_name == LayerTraits<Input>::class_name;
  if (dtype == "float32" || (is_input && enum_of<InputType>(dtype))) return Precision::float32;
  if (dtype == "mixed_bfloat16") return Precision::mixed_bfloat16;
  const std::string known =
      is_input ? fmt::format("takes inputs of {}", fmt::join(enum_names<InputType>(), ", "))
               : "computes in float32 or mixed_bfloat16 (16 bits with float32's range: the loss needs no scaling)";
  config.fail(fmt::format("has the dtype {}, but Lockstep {}; build the model with one of them", dtype, known));
}

/// Where a model's JSON comes from.
struct Source {
  std::string name;  ///< for messages
  Initializers initializers;
};

/// Reads one layer: finds its type by the class, then visits that type's fields.
class LayerReader {
 public:
  LayerReader(const ClassConfig& layer, const Source& source, std::size_t index)
      : class_name_(layer.class_name),
        name_(layer.config->is_object() ? layer.config->value("name", json()) : json()),
        where_(name_.is_string()
                   ? fmt::format("{}: layer '{}' ({})", source.name, name_.get<std::string>(), class_name_)
                   : fmt::format("{}: layer {} ({})", source.name, index, class_name_)),
        initializers_(source.initializers),
        config_(*layer.config, where_) {
    config_.ignore({"name", "rng_type"});  // Keras 2's layers that augment name its generator
    trainable_ = config_.boolean("trainable", true);
    static_cast<void>(read_precision(config_, class_name_));  // Architecture keeps it
    config_.ignore({"batch_input_shape"});                    // model_from_json() turns the first layer's into an Input
  }

  Layer read() {
    std::optional<Layer> layer;
    for_each_alternative<Layer>([&]<typename L>(std::type_identity<L>) {
      if (class_name_ != LayerTraits<L>::class_name) return;
      L made = blank_layer<L>();
      if (name_.is_string()) made.name = name_.get<std::string>();
      FieldReader reader(config_, where_, initializers_);
      LayerTraits<L>::fields(reader, made);
      layer = std::move(made);
    });
    if (!layer) {
      std::vector<std::string_view> known = layer_class_names();
      known.emplace_back("Functional");
      std::ranges::sort(known);
      config_.fail(
          "is of a class that Lockstep does not have; lockstep.fit trains models that Keras 3 loads; Lockstep has " +
          join_words(known));
    }
    config_.reject_unread_keys();
    set_trainable(*layer, trainable_);
    return *std::move(layer);
  }

 private:
  std::string class_name_;
  json name_;  ///< a string, if the file gives a name
  std::string where_;
  Initializers initializers_;
  ConfigReader config_;
  bool trainable_ = true;
};

/// Visits the fields of a layer whose input shape is known, and refuses an axis that is not the input's last.
class AxisCheck : public FieldVisitor {
 public:
  AxisCheck(ConfigReader& config, std::size_t input_rank) : config_(config), input_rank_(input_rank) {}

  void last_axis(const std::string& key) const {
    const json* axis = config_.find(key);
    if (axis == nullptr) return;
    if (axis->is_array() && axis->size() == 1) axis = &axis->at(0);
    if (*axis != json(-1) && *axis != json(input_rank_)) config_.fail_unsupported(key);
  }

 private:
  ConfigReader& config_;
  std::size_t input_rank_;
};

void check_axes(ConfigReader& config, const LayerInfo& info) {
  const AxisCheck check(config, info.input_shape.rank());
  std::visit([&]<typename L>(const L& layer) { LayerTraits<L>::fields(check, layer); }, info.layer);
}

bool is_functional(const std::string& class_name) { return class_name == "Functional" || class_name == "Model"; }
bool is_model(const std::string& class_name) { return is_functional(class_name) || class_name == "Sequential"; }

enum class Place { outermost, nested };
Architecture read_model(const ClassConfig& model, const Source& source, Place place = Place::outermost);

Layer read_layer(const ClassConfig& layer, const Source& source, std::size_t index) {
  if (!is_model(layer.class_name)) return LayerReader(layer, source, index).read();
  const std::string where = fmt::format("{}: layer {} ({})", source.name, index, layer.class_name);
  const std::string name = ConfigReader(*layer.config, where).text("name");
  const std::string within = fmt::format("{}: layer '{}' ({})", source.name, name, layer.class_name);
  NestedModel nested(read_model(layer, {within, source.initializers}, Place::nested));
  nested.trainable = ConfigReader(*layer.config, where).boolean("trainable", true);
  return nested;
}

/// The layers of a Sequential model, beginning with the Input, which Keras omits if the model was built without one.
std::vector<Layer> read_chain(const json& entries, ConfigReader& config, const Source& source,
                              std::vector<const json*>& described) {
  std::vector<Layer> layers;
  for (const json& entry : entries) {
    const ClassConfig layer(entry, fmt::format("{}: layer {}", source.name, layers.size()));
    if (layers.empty() && layer.class_name != "InputLayer") {
      described.push_back(nullptr);
      if (is_model(layer.class_name)) {
        Layer nested = read_layer(layer, source, 0);
        const Architecture& first = *std::get<NestedModel>(nested).model;
        layers.emplace_back(Input(first.input_shape(), {}, first.input_type()));
        layers.push_back(std::move(nested));
        described.push_back(&entry);
        continue;
      }
      ConfigReader first(*layer.config, source.name + ": its first layer");
      const bool shape_of_layer = first.find("batch_input_shape") != nullptr;
      if (!shape_of_layer && config.find("build_input_shape") == nullptr) {
        config.fail("does not give the shape of its input; begin the model with keras.Input and save it again");
      }
      layers.emplace_back(
          Input(shape_of_layer ? first.shape("batch_input_shape", true) : config.shape("build_input_shape", true)));
    }
    layers.push_back(read_layer(layer, source, layers.size()));
    described.push_back(&entry);
  }
  return layers;
}

/// Freezes the weights of an outermost model whose own flag says so. Keras lets each BatchNormalization look at its own
/// flag only, and forgets that of a Sequential model in a file.
void freeze(Architecture& architecture, bool has_graph, const std::string& source) {
  const Architecture flat = architecture.flattened();
  for (const LayerInfo& layer : flat.layers()) {
    const bool is_normalization = std::holds_alternative<BatchNormalization>(layer.layer);
    if (!is_trainable(layer.layer) || layer.parameters.empty() || (has_graph && !is_normalization)) continue;
    throw DataError(fmt::format(
        "{}: the model is not trainable, but its layer '{}' ({}) is, so {}; freeze the layer too, or set the "
        "model's trainable before its layers'",
        source, layer.name, layer.class_name,
        has_graph ? "Keras would update its moving averages and nothing else"
                  : "Keras would train it only after it has read the file"));
  }
  architecture.set_trainable(false);
}

Architecture read_model(const ClassConfig& model, const Source& source, Place place) {
  const bool has_graph = is_functional(model.class_name);
  ConfigReader config(*model.config, source.name);
  const std::string name = config.text("name", has_graph ? "functional" : "sequential");
  const json* const entries = config.find("layers");
  if (entries == nullptr || !entries->is_array() || entries->empty()) config.fail("has no list of layers");

  LayerGraph graph;
  std::vector<const json*> described;  // null for an Input that the file does not list
  std::vector<std::string> names;      // of a Functional model, which orders its layers anew
  const json layers = has_graph ? operations_as_layers(*entries, source.name) : json();
  if (has_graph) {
    graph = read_connections(layers, config, source.name);
    for (const json& entry : layers) {
      const ClassConfig layer(entry, fmt::format("{}: layer {}", source.name, described.size()));
      names.push_back(
          ConfigReader(*layer.config, fmt::format("{}: layer {}", source.name, described.size())).text("name"));
      graph.layers.push_back(read_layer(layer, source, described.size()));
      described.push_back(&entry);
    }
  } else {
    graph.layers = read_chain(*entries, config, source, described);
  }
  // Setting a model's flag sets those of its layers, which count; only the outermost model's counts as well.
  const bool is_frozen = !config.boolean("trainable", true) && place == Place::outermost;
  config.ignore({"dtype", "build_input_shape"});  // each layer has its own dtype
  config.reject_unread_keys();

  try {
    Architecture architecture =
        has_graph ? Architecture(Functional(graph, name)) : Architecture(Sequential(std::move(graph.layers), name));
    if (is_frozen) freeze(architecture, has_graph, source.name);
    if (place == Place::outermost) static_cast<void>(architecture.flattened());  // throws if there are too many calls
    for (std::size_t i = 0; i < described.size(); ++i) {
      if (described[i] == nullptr) continue;
      const auto its_name = [&](const LayerInfo& any) { return any.name == names[i]; };
      const auto& made = architecture.layers();
      const LayerInfo& info = has_graph ? *std::ranges::find_if(made, its_name) : made[i];
      const ClassConfig layer(*described[i], source.name);
      ConfigReader options(*layer.config, fmt::format("{}: layer '{}' ({})", source.name, info.name, info.class_name));
      check_axes(options, info);
      if (!std::holds_alternative<NestedModel>(info.layer))
        architecture.set_precision(info.name, read_precision(options, info.class_name));
    }
    return architecture;
  } catch (const UsageError& error) {
    throw DataError(source.name + ": " + error.what());
  }
}

/// Visits the fields of a layer that Keras 2 wrote.
class Keras2Check : public FieldVisitor {
 public:
  Keras2Check(const LayerInfo& layer, const std::string& source) : layer_(layer), source_(source) {}

  void required(std::string_view /*key*/, const auto& value, const auto&... /*range*/) const { check(value); }
  void optional(std::string_view /*key*/, const auto& value, const auto&... /*range*/) const { check(value); }

 private:
  void check(const auto& value) const {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, ActivationFunction>) {
      if (value != activations::hard_sigmoid) return;
      throw DataError(
          fmt::format("{}: layer '{}' ({}) has Keras 2's hard_sigmoid, min(max(0.2 x + 0.5, 0), 1), but Lockstep has "
                      "Keras 3's, which divides x by 6; build the model with another activation",
                      source_, layer_.name, layer_.class_name));
    }
  }

  const LayerInfo& layer_;
  const std::string& source_;
};

Architecture read_document(const std::string& text, const Source& source) {
  const json document = parse_json(text, source.name);
  const ClassConfig model(document, source.name);
  if (!is_model(model.class_name)) {
    throw DataError(source.name + " describes a " + model.class_name +
                    " model, but Lockstep reads Sequential and Functional ones; rebuild it as one of them and save it "
                    "again");
  }
  return read_model(model, source);
}

}  // namespace

Architecture model_from_json(const std::string& text, const std::string& source) {
  return read_document(text, {source, Initializers::needed});
}

Architecture model_of_weights_from_json(const std::string& text, const std::string& source, KerasVersion version) {
  Architecture architecture = read_document(text, {source, Initializers::optional});
  if (version == KerasVersion::three) return architecture;
  const Architecture flattened = architecture.flattened();
  for (const LayerInfo& info : flattened.layers()) {
    const Keras2Check check(info, source);
    std::visit([&]<typename L>(const L& layer) { LayerTraits<L>::fields(check, layer); }, info.layer);
  }
  return architecture;
}

}  // namespace lockstep
