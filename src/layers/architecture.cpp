// See architecture.hpp. Names layers as Keras does, and infers the shapes of all calls.
#include <lockstep/layers/architecture.hpp>

#include "layers/layer_registry.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

/// Keras' automatic names, "dense", "dense_1", ...: counts the unnamed layers of each class.
class LayerNames {
 public:
  std::string name_for(const Layer& layer) {
    const std::string& given = name_of(layer);
    const std::string class_name(class_name_of(layer));
    std::string name = given;
    if (given.empty()) {
      name = to_snake_case(class_name);
      const int count = counts_[name]++;
      if (count > 0) name += fmt::format("_{}", count);
    } else if (given.find('/') != std::string::npos) {
      throw UsageError("the name '" + given + "' of a " + class_name +
                       " layer holds a '/', which separates groups in files; use another character");
    } else if (given.find('\0') != std::string::npos) {
      throw UsageError("the name '" + given.substr(0, given.find('\0')) + "...' of a " + class_name +
                       " layer holds a NUL, at which files would cut it; leave it out");
    }
    if (!taken_.insert(name).second) {
      throw UsageError("two layers have the name '" + name + "', the second of them a " + class_name +
                       "; give each layer a unique name");
    }
    return name;
  }

 private:
  std::map<std::string, int> counts_;
  std::set<std::string> taken_;
};

/// Throws UsageError if the later call of a shared layer would need other weights than the first.
void require_equal_parameters(const LayerInfo& layer, const LayerInfo& again) {
  for (std::size_t i = 0; i < layer.parameters.size(); ++i) {
    if (layer.parameters[i].shape == again.parameters[i].shape) continue;
    throw UsageError(fmt::format(
        "layer '{}' ({}) is called on {} and on {}, which need a {} of shape {} and of {}; shared layers must be "
        "called on equal shapes",
        layer.name, layer.class_name, layer.input_shape.to_string(), again.input_shape.to_string(),
        layer.parameters[i].name, layer.parameters[i].shape.to_string(), again.parameters[i].shape.to_string()));
  }
}

}  // namespace

Architecture::Architecture(std::string name, LayerGraph graph, bool is_sequential)
    : name_(std::move(name)),
      has_automatic_name_(name_.empty()),
      calls_(std::move(graph.calls)),
      inputs_(std::move(graph.inputs)),
      outputs_(std::move(graph.outputs)),
      is_sequential_(is_sequential) {
  if (has_automatic_name_) name_ = is_sequential ? "sequential" : "functional";
  LayerNames names;
  layers_.reserve(graph.layers.size());
  for (const Layer& layer : graph.layers) {
    layers_.push_back({.layer = layer,
                       .class_name = std::string(class_name_of(layer)),
                       .name = names.name_for(layer),
                       .input_shape = {},
                       .output_shape = {},
                       .parameters = {}});
  }
  infer_calls();
  name_outputs();
}

void Architecture::infer_calls() {
  std::vector<bool> called(layers_.size(), false);
  for (LayerCall& call : calls_) {
    std::vector<Shape> shapes;
    for (const int input : call.inputs) shapes.push_back(calls_[input].output_shape);
    LayerInfo& layer = layers_[call.layer];
    LayerInfo inferred = layer;
    inferred.parameters.clear();
    infer_shapes(inferred, shapes);
    call.output_shape = inferred.output_shape;
    if (called[call.layer]) {
      require_equal_parameters(layer, inferred);
    } else {
      layer = std::move(inferred);
      called[call.layer] = true;
    }
  }
}

void Architecture::set_trainable(bool trainable) {
  for (LayerInfo& layer : layers_) lockstep::set_trainable(layer.layer, trainable);
  infer_calls();
}

void Architecture::set_trainable(std::string_view layer, bool trainable) {
  lockstep::set_trainable(named(layer).layer, trainable);
  infer_calls();
}

LayerInfo& Architecture::named(std::string_view layer) {
  const auto found = std::ranges::find(layers_, layer, &LayerInfo::name);
  if (found == layers_.end()) {
    throw UsageError(fmt::format("the model has no layer '{}'; its summary() lists their names", layer));
  }
  return *found;
}

void Architecture::set_precision(Precision precision) {
  for (LayerInfo& layer : layers_) {
    if (!std::holds_alternative<Input>(layer.layer)) layer.precision = precision;
  }
}

void Architecture::set_precision(std::string_view layer, Precision precision) { named(layer).precision = precision; }

void Architecture::name_outputs() {
  std::set<std::string> layers;
  for (std::size_t i = 0; i < outputs_.size(); ++i) layers.insert(output_layer(i).name);
  std::set<std::string> taken;
  output_names_.clear();
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const std::string& layer = output_layer(i).name;
    std::string name = layer;
    for (int number = 1; taken.contains(name) || (name != layer && layers.contains(name)); ++number)
      name = fmt::format("{}_{}", layer, number);
    taken.insert(name);
    output_names_.push_back(std::move(name));
  }
}

bool Architecture::is_chain() const noexcept {
  if (calls_.size() != layers_.size() || outputs_.size() != 1 || inputs_.size() != 1) return false;
  for (std::size_t i = 1; i < calls_.size(); ++i) {
    const LayerCall& call = calls_[i];
    if (call.inputs.size() != 1 || call.inputs.front() != static_cast<int>(i) - 1) return false;
  }
  return true;
}

std::int64_t Architecture::count_parameters(bool trainable) const noexcept {
  std::int64_t count = 0;
  for (const LayerInfo& layer : layers_) {
    for (const ParameterInfo& parameter : layer.parameters) {
      if (parameter.trainable == trainable) count += parameter.shape.elements();
    }
  }
  return count;
}

}  // namespace lockstep
