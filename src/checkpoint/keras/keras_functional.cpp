// See keras_functional.hpp.
#include "checkpoint/keras/keras_functional.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using nlohmann::json;

/// True for ["conv2d", 0, 0], the output of a layer. Keras 2 appends an object with the call's other arguments.
bool names_output(const json& value) {
  return value.is_array() && (value.size() == 3 || value.size() == 4) && value[0].is_string() &&
         value[1].is_number_integer() && value[2].is_number_integer();
}

bool is_first(const json& output) { return output[2] == json(0); }

/// Collects all layer outputs named in nested lists and objects.
void collect(const json& value, std::vector<const json*>& outputs) {
  if (names_output(value)) {
    outputs.push_back(&value);
  } else if (value.is_structured()) {
    for (const json& element : value) collect(element, outputs);
  }
}

std::vector<std::string> layers_of(const std::vector<const json*>& outputs) {
  std::vector<std::string> names;
  names.reserve(outputs.size());
  for (const json* output : outputs) names.push_back(output->at(0).get<std::string>());
  return names;
}

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += "'" + names[i] + "'";
  }
  return text;
}

/// One layer of the graph.
struct Node {
  const json* entry = nullptr;
  std::string class_name;
  std::string source;              ///< the layer that feeds this one; empty: none
  std::vector<std::string> feeds;  ///< the layers that this one feeds
};

class LayerGraph {
 public:
  LayerGraph(const json& layers, std::string where) : where_(std::move(where)) {
    for (const json& entry : layers) add(entry);
    for (const auto& [name, node] : nodes_) {
      if (node.source.empty()) continue;
      const auto source = nodes_.find(node.source);
      if (source == nodes_.end()) fail(name, fmt::format("is fed by '{}', which the model lacks", node.source));
      source->second.feeds.push_back(name);
    }
  }

  [[nodiscard]] std::vector<const json*> chain(const std::string& input, const std::string& output) const {
    for (const auto& [name, node] : nodes_) {
      if (!node.source.empty()) continue;
      if (node.class_name != "InputLayer") fail(name, "is fed by no layer");
      if (name != input) fail(name, "is a second input");
    }
    std::vector<const json*> order;
    for (std::string name = input; order.size() <= nodes_.size();) {
      const auto found = nodes_.find(name);
      if (found == nodes_.end()) fail(name, "is the model's input, but not among its layers");
      order.push_back(found->second.entry);
      const std::vector<std::string>& feeds = found->second.feeds;
      if (feeds.size() > 1) fail(name, fmt::format("feeds {} layers, {}", feeds.size(), list_of(feeds)));
      if (feeds.empty()) {
        if (name != output) fail(name, fmt::format("feeds no other layer, but the model's output is '{}'", output));
        break;
      }
      name = feeds.front();
    }
    if (order.size() == nodes_.size()) return order;
    throw DataError(fmt::format("{} has layers that its input does not feed; the file is damaged", where_));
  }

  /// The single layer that the model's input_layers or output_layers names.
  [[nodiscard]] std::string end_of(ConfigReader& config, const std::string& key) const {
    std::vector<const json*> ends;
    if (const json* const value = config.find(key)) collect(*value, ends);
    const std::vector<std::string> names = layers_of(ends);
    if (names.size() == 1 && is_first(*ends.front())) return names.front();
    throw DataError(
        fmt::format("{} has {} layers as {} ({}), but Lockstep's models are chains from one input to one "
                    "output; save the part between one input and one output as a model of its own",
                    where_, names.size(), key, list_of(names)));
  }

 private:
  [[noreturn]] void fail(const std::string& layer, const std::string& problem) const {
    const auto found = nodes_.find(layer);
    throw DataError(fmt::format(
        "{}: layer '{}'{} {}; Lockstep's models are chains, in which each layer feeds the next, "
        "so build it as keras.Sequential",
        where_, layer, found == nodes_.end() ? "" : fmt::format(" ({})", found->second.class_name), problem));
  }

  void add(const json& entry) {
    const std::string where = fmt::format("{}: layer {}", where_, nodes_.size());
    const ClassConfig described(entry, where);
    ConfigReader reader(entry, where + " (" + described.class_name + ")");
    std::string name = reader.text("name", "");
    if (name.empty()) name = ConfigReader(*described.config, where).text("name");
    if (!nodes_.emplace(name, Node{&entry, described.class_name, {}, {}}).second) {
      reader.fail(fmt::format("has the name '{}', like another layer", name));
    }
    const json* const calls = reader.find("inbound_nodes");
    if (calls == nullptr || calls->empty()) return;
    if (!calls->is_array()) reader.fail_unsupported("inbound_nodes");
    if (calls->size() > 1) fail(name, fmt::format("is used {} times", calls->size()));
    nodes_[name].source = source_of(calls->front(), name);
  }

  /// The layer whose output is the input of a call.
  [[nodiscard]] std::string source_of(const json& call, const std::string& name) const {
    std::vector<const json*> inputs;
    if (call.is_object()) {
      read_arguments(call, name, inputs);
    } else {
      collect(call, inputs);
      for (const json* input : inputs) {
        if (input->size() == 4) check_options(input->at(3), name, false);
      }
    }
    const std::vector<std::string> names = layers_of(inputs);
    if (names.size() != 1) {
      fail(name, fmt::format("takes {} inputs{}{}", names.size(), names.empty() ? "" : ", ", list_of(names)));
    }
    if (!is_first(*inputs.front())) {
      fail(name, fmt::format("takes the second or a later output of '{}'", names.front()));
    }
    return names.front();
  }

  /// Reads Keras 3's {"args": [...], "kwargs": {...}}. Each tensor in it names its layer.
  void read_arguments(const json& call, const std::string& name, std::vector<const json*>& inputs) const {
    const auto args = call.find("args");
    if (args != call.end()) collect_tensors(*args, name, inputs);
    const auto kwargs = call.find("kwargs");
    if (kwargs == call.end()) return;
    const bool by_name = inputs.empty() && kwargs->contains("inputs");
    if (by_name) collect_tensors(kwargs->at("inputs"), name, inputs);
    json others = *kwargs;
    if (by_name) others.erase("inputs");
    check_options(others, name, true);
  }

  void collect_tensors(const json& value, const std::string& name, std::vector<const json*>& inputs) const {
    if (value.is_array()) {
      for (const json& element : value) collect_tensors(element, name, inputs);
      return;
    }
    const json* history = nullptr;
    if (value.is_object() && value.value("class_name", json()) == json("__keras_tensor__") &&
        value.contains("config") && value.at("config").is_object() && value.at("config").contains("keras_history")) {
      history = &value.at("config").at("keras_history");
    }
    if (history == nullptr || !names_output(*history)) fail(name, "is called with more than a layer's output");
    inputs.push_back(history);
  }

  /// Checks a call's arguments other than its inputs. Keras 3 also records arguments that the user did not pass, such
  /// as "training": false, which fit() overrides. Keras 2 records only those that the user passed.
  void check_options(const json& options, const std::string& name, bool keras3) const {
    if (!options.is_object()) fail(name, "is called in a way that Lockstep does not support");
    for (const auto& [option, value] : options.items()) {
      if (value.is_null() || (keras3 && option == "training" && value == json(false))) continue;
      fail(name, fmt::format("is called with {}, which Lockstep does not support", option));
    }
  }

  std::string where_;
  std::map<std::string, Node> nodes_;
};

}  // namespace

std::vector<const json*> linearize_functional(const json& layers, ConfigReader& config, const std::string& source) {
  const LayerGraph graph(layers, source);
  const std::string input = graph.end_of(config, "input_layers");
  return graph.chain(input, graph.end_of(config, "output_layers"));
}

}  // namespace lockstep
