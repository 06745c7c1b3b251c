// See keras_functional.hpp. Layers' calls are numbered from 0. Two numberings begin with 1: Keras 2's of the calls of
// nested models, and Keras 3's of those of nested Functional models, but only in input_layers and output_layers.
#include "checkpoint/keras/keras_functional.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

using nlohmann::json;

/// True for ["conv2d", 0, 0], an output of a layer's call. Keras 2 appends an object with the call's other arguments.
bool names_output(const json& value) {
  return value.is_array() && (value.size() == 3 || value.size() == 4) && value[0].is_string() &&
         value[1].is_number_integer() && value[2].is_number_integer();
}

/// Collects all outputs named in nested lists and objects.
void collect(const json& value, std::vector<const json*>& outputs) {
  if (names_output(value)) {
    outputs.push_back(&value);
  } else if (value.is_structured()) {
    for (const json& element : value) collect(element, outputs);
  }
}

/// Layers of images, whose calls Keras 3 records with their default `training=True`. fit(), evaluate() and predict()
/// say otherwise where it matters.
constexpr std::array<std::string_view, 8> training_by_default{"CenterCrop",        "Resizing",        "RandomFlip",
                                                              "RandomTranslation", "RandomRotation",  "RandomZoom",
                                                              "RandomContrast",    "RandomBrightness"};

class ConnectionReader {
 public:
  ConnectionReader(const json& layers, std::string where) : where_(std::move(where)) {
    for (const json& entry : layers) add_layer(entry);
  }

  LayerGraph run(ConfigReader& config) {
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      const NamedLayer& named = layers_[layer];
      for (std::size_t i = 0; i < named.calls.size(); ++i) {
        graph_.calls[named.first_call + i].inputs = inputs_of(*named.calls[i], layer);
      }
    }
    graph_.inputs = ends_of(config, "input_layers");
    graph_.outputs = ends_of(config, "output_layers");
    for (const int input : graph_.inputs) {
      const std::size_t layer = graph_.calls[input].layer;
      if (layers_[layer].class_name != "InputLayer") fail(layer, "is an input of the model, but no InputLayer");
    }
    for (std::size_t call = 0; call < graph_.calls.size(); ++call) {
      const bool is_listed = std::ranges::find(graph_.inputs, static_cast<int>(call)) != graph_.inputs.end();
      if (graph_.calls[call].inputs.empty() && !is_listed) {
        fail(graph_.calls[call].layer, "is an InputLayer that input_layers does not name");
      }
    }
    require_all_used();
    return std::move(graph_);
  }

 private:
  struct NamedLayer {
    std::string name;
    std::string class_name;
    std::vector<const json*> calls;
    std::size_t first_call = 0;  ///< index in LayerGraph::calls
    [[nodiscard]] bool is_functional() const { return class_name == "Functional" || class_name == "Model"; }
    [[nodiscard]] bool is_nested_model() const { return is_functional() || class_name == "Sequential"; }
  };

  enum class Reader { layer, end };

  [[noreturn]] void fail(std::size_t layer, const std::string& problem) const {
    throw DataError(
        fmt::format("{}: layer '{}' ({}) {}", where_, layers_[layer].name, layers_[layer].class_name, problem));
  }

  void add_layer(const json& entry) {
    const std::size_t index = layers_.size();
    const std::string where = fmt::format("{}: layer {}", where_, index);
    const ClassConfig described(entry, where);
    ConfigReader reader(entry, where + " (" + described.class_name + ")");
    std::string name = reader.text("name", "");
    if (name.empty()) name = ConfigReader(*described.config, where).text("name");
    if (!indices_.emplace(name, index).second) {
      reader.fail(fmt::format("has the name '{}', like another layer", name));
    }
    layers_.push_back({name, described.class_name, {}, graph_.calls.size()});
    const json* const calls = reader.find("inbound_nodes");
    if (calls != nullptr && !calls->is_array()) reader.fail_unsupported("inbound_nodes");
    const std::size_t count = calls == nullptr ? 0 : calls->size();
    const bool is_input = described.class_name == "InputLayer";
    if (is_input && count > 0) fail(index, "is an input that another layer feeds");
    if (!is_input && count == 0) fail(index, "is fed by no layer");
    for (std::size_t i = 0; i < count; ++i) {
      layers_.back().calls.push_back(&calls->at(i));
      if (calls->at(i).is_array()) is_keras2_ = true;
    }
    for (std::size_t i = 0; i < std::max<std::size_t>(count, 1); ++i) {
      graph_.calls.push_back({.layer = static_cast<int>(index), .inputs = {}});
    }
  }

  /// The call whose output `value` names.
  template <typename Fail>
  [[nodiscard]] int call_named(const json& value, Reader reader, const Fail& fail_reader) const {
    const auto& name = value.at(0).get_ref<const std::string&>();
    const auto found = indices_.find(name);
    if (found == indices_.end()) fail_reader(fmt::format("'{}', which the model lacks", name));
    const NamedLayer& layer = layers_[found->second];
    const auto calls = static_cast<std::int64_t>(std::max<std::size_t>(layer.calls.size(), 1));
    const bool begins_with_1 = is_keras2_ ? layer.is_nested_model() : reader == Reader::end && layer.is_functional();
    const auto call = value.at(1).get<std::int64_t>() - (begins_with_1 ? 1 : 0);
    if (value.at(2) != json(0)) fail_reader(fmt::format("the second or a later output of '{}'", name));
    if (call < 0 || call >= calls)
      fail_reader(fmt::format("node {} of '{}', which has {}", call, name,
                              calls == 1 ? "only node 0" : fmt::format("nodes 0 to {}", calls - 1)));
    return static_cast<int>(layer.first_call) + static_cast<int>(call);
  }

  [[nodiscard]] std::vector<int> inputs_of(const json& call, std::size_t layer) const {
    std::vector<const json*> outputs;
    if (call.is_object()) {
      read_arguments(call, layer, outputs);
    } else {
      collect(call, outputs);
      for (const json* output : outputs) {
        if (output->size() == 4) check_options(output->at(3), layer, false);
      }
    }
    if (outputs.empty()) fail(layer, "is called on no tensor");
    std::vector<int> inputs;
    inputs.reserve(outputs.size());
    for (const json* output : outputs) {
      inputs.push_back(
          call_named(*output, Reader::layer, [&](const std::string& what) { fail(layer, "is fed by " + what); }));
    }
    return inputs;
  }

  /// Reads Keras 3's {"args": [...], "kwargs": {...}}. Each tensor in it names its layer.
  void read_arguments(const json& call, std::size_t layer, std::vector<const json*>& outputs) const {
    const auto args = call.find("args");
    if (args != call.end()) collect_tensors(*args, layer, outputs);
    const auto kwargs = call.find("kwargs");
    if (kwargs == call.end()) return;
    const bool by_name = outputs.empty() && kwargs->contains("inputs");
    if (by_name) collect_tensors(kwargs->at("inputs"), layer, outputs);
    json others = *kwargs;
    if (by_name) others.erase("inputs");
    check_options(others, layer, true);
  }

  void collect_tensors(const json& value, std::size_t layer, std::vector<const json*>& outputs) const {
    if (value.is_array()) {
      for (const json& element : value) collect_tensors(element, layer, outputs);
      return;
    }
    const json* history = nullptr;
    if (value.is_object() && value.value("class_name", json()) == json("__keras_tensor__") &&
        value.contains("config") && value.at("config").is_object() && value.at("config").contains("keras_history")) {
      history = &value.at("config").at("keras_history");
    }
    if (history == nullptr || !names_output(*history))
      fail(layer,
           "is called with more than layers' outputs; save the model as .keras, which may say it in another way");
    outputs.push_back(history);
  }

  /// Checks a call's arguments other than its inputs. Keras 3 also records arguments that the user did not pass, such
  /// as "training": false, which fit() overrides. Keras 2 records only those that the user passed.
  void check_options(const json& options, std::size_t layer, bool keras3) const {
    if (!options.is_object()) fail(layer, "is called in a way that Lockstep does not support");
    const bool takes_training = std::ranges::count(training_by_default, layers_[layer].class_name) > 0;
    for (const auto& [option, value] : options.items()) {
      const bool is_training = keras3 && option == "training" && value.is_boolean();
      if (value.is_null() || (is_training && (takes_training || value == json(false)))) continue;
      fail(layer, fmt::format("is called with {}, which Lockstep does not support", option));
    }
  }

  [[nodiscard]] std::vector<int> ends_of(ConfigReader& config, const std::string& key) const {
    std::vector<const json*> named;
    const json* const value = config.find(key);
    if (value != nullptr) collect(*value, named);
    if (value != nullptr && value->is_object()) require_own_names(*value, key, named);
    if (named.empty()) throw DataError(fmt::format("{} names no layers as {}", where_, key));
    std::vector<int> ends;
    ends.reserve(named.size());
    for (const json* end : named) {
      ends.push_back(call_named(*end, Reader::end, [&](const std::string& what) {
        throw DataError(fmt::format("{}: {} names {}", where_, key, what));
      }));
    }
    return ends;
  }

  /// Keras goes by the keys of a dict, Lockstep by the names of layers. Other words than those confuse nobody.
  void require_own_names(const json& dict, const std::string& key, const std::vector<const json*>& named) const {
    for (const auto& [name, end] : dict.items()) {
      if (!names_output(end) || end.at(0) == json(name)) continue;
      const auto is_of_layer = [&name = name](const json* each) { return each->at(0) == json(name); };
      if (std::ranges::none_of(named, is_of_layer)) continue;
      throw DataError(
          fmt::format("{}: {} is a dict in which '{}' is the layer {}; give the layers the names of the keys", where_,
                      key, name, end.at(0).dump()));
    }
  }

  /// Every layer must matter to an output, or its weights would be dropped in silence.
  void require_all_used() const {
    std::vector<bool> used(graph_.calls.size(), false);
    for (const int input : graph_.inputs) used[input] = true;
    std::vector<int> open = graph_.outputs;
    while (!open.empty()) {
      const int call = open.back();
      open.pop_back();
      if (used[call]) continue;
      used[call] = true;
      for (const int input : graph_.calls[call].inputs) {
        if (!used[input]) open.push_back(input);
      }
    }
    for (std::size_t call = 0; call < used.size(); ++call) {
      if (!used[call]) fail(graph_.calls[call].layer, "is called, but no output of the model depends on it");
    }
  }

  std::string where_;
  bool is_keras2_ = false;  ///< a call is a list, a form that Lockstep writes only for models without nested ones
  std::vector<NamedLayer> layers_;
  std::map<std::string, std::size_t> indices_;  ///< by name
  LayerGraph graph_;
};

bool is_nested_model(const LayerInfo& layer) { return std::holds_alternative<NestedModel>(layer.layer); }

/// The index of a call among those of its layer.
int call_index(const Architecture& architecture, int call) {
  const auto& calls = architecture.calls();
  const int layer = calls[call].layer;
  return static_cast<int>(
      std::count_if(calls.begin(), calls.begin() + call, [&](const LayerCall& any) { return any.layer == layer; }));
}

nlohmann::ordered_json name_output(const Architecture& architecture, int call) {
  return {architecture.layers()[architecture.calls()[call].layer].name, call_index(architecture, call), 0};
}

}  // namespace

LayerGraph read_connections(const json& layers, ConfigReader& config, const std::string& source) {
  return ConnectionReader(layers, source).run(config);
}

nlohmann::ordered_json inbound_nodes_of(const Architecture& architecture, int layer) {
  using json = nlohmann::ordered_json;
  const bool has_nested_models = std::ranges::any_of(architecture.layers(), is_nested_model);
  json nodes = json::array();
  for (const LayerCall& call : architecture.calls()) {
    if (call.layer != layer || call.inputs.empty()) continue;
    json inputs = json::array();
    for (const int input : call.inputs) {
      json name = name_output(architecture, input);
      if (has_nested_models) {
        json shape = architecture.calls()[input].output_shape.extents();
        shape.insert(shape.begin(), nullptr);
        inputs.push_back({{"class_name", "__keras_tensor__"},
                          {"config", {{"shape", shape}, {"dtype", "float32"}, {"keras_history", name}}}});
      } else {
        inputs.push_back(name);
        inputs.back().push_back(json::object());
      }
    }
    if (!has_nested_models) {
      nodes.push_back(inputs);
    } else {
      nodes.push_back({{"args", json::array({inputs.size() == 1 ? inputs[0] : inputs})}, {"kwargs", json::object()}});
    }
  }
  return nodes;
}

nlohmann::ordered_json ends_to_json(const Architecture& architecture, const std::vector<int>& calls, Ends form) {
  auto ends = nlohmann::ordered_json::array();
  for (const int call : calls) {
    nlohmann::ordered_json end = name_output(architecture, call);
    const LayerInfo& layer = architecture.layers()[architecture.calls()[call].layer];
    if (is_nested_model(layer) && layer.class_name == "Functional") end[1] = end[1].get<int>() + 1;
    ends.push_back(std::move(end));
  }
  if (form == Ends::of_nested_model && ends.size() == 1) return ends[0];
  return ends;
}

}  // namespace lockstep
