// See sequential.hpp. Names layers as Keras does, and infers shapes from the first layer to the last.
#include <lockstep/layers/sequential.hpp>

#include "layers/layer_registry.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

/// Keras' automatic names, "dense", "dense_1", ...: counts the unnamed layers of each class.
class LayerNames {
 public:
  std::string name_for(const Layer& layer) {
    const std::string& given = std::visit([](const auto& any) -> const std::string& { return any.name; }, layer);
    const std::string class_name(class_name_of(layer));
    std::string name = given;
    if (given.empty()) {
      name = to_snake_case(class_name);
      const int count = counts_[name]++;
      if (count > 0) name += fmt::format("_{}", count);
    } else if (given.find('/') != std::string::npos) {
      throw UsageError("the name '" + given + "' of a " + class_name +
                       " layer holds a '/', which separates groups in files; use another character");
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

}  // namespace

Sequential::Sequential(std::vector<Layer> layers, std::string name) : name_(std::move(name)) {
  if (layers.empty() || !std::holds_alternative<Input>(layers.front())) {
    throw UsageError("the first layer of a model must be an Input, which gives the shape of one example" +
                     (layers.empty() ? std::string(", but there are no layers")
                                     : ", but it is a " + std::string(class_name_of(layers.front())) +
                                           "; begin with e.g. Input({28, 28})"));
  }
  if (layers.size() == 1)
    throw UsageError("the model consists of nothing but an Input; add layers that compute something");

  LayerNames names;
  layers_.reserve(layers.size());
  for (const Layer& layer : layers) {
    LayerInfo info{.layer = layer,
                   .class_name = std::string(class_name_of(layer)),
                   .name = names.name_for(layer),
                   .input_shape = {},
                   .output_shape = {},
                   .parameters = {}};
    if (!layers_.empty()) {
      if (std::holds_alternative<Input>(layer)) {
        throw UsageError(fmt::format("layer {} is a second Input, '{}'; a model has only one, as its first layer",
                                     layers_.size(), info.name));
      }
      info.input_shape = layers_.back().output_shape;
    } else {
      info.input_shape = std::get<Input>(layer).shape;
    }
    infer_shapes(info);
    layers_.push_back(std::move(info));
  }
}

std::int64_t Sequential::count_parameters(bool trainable) const noexcept {
  std::int64_t count = 0;
  for (const LayerInfo& layer : layers_) {
    for (const ParameterInfo& parameter : layer.parameters) {
      if (parameter.trainable == trainable) count += parameter.shape.elements();
    }
  }
  return count;
}

}  // namespace lockstep
