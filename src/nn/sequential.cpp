// A chain of layers: names as Keras makes them, shapes worked out from the first layer to the last.
#include <lockstep/nn/sequential.hpp>

#include "nn/infer.hpp"

#include <lockstep/core/error.hpp>

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

/// "dense", "dense_1", ...: Keras counts the layers of a class that were given no name.
class LayerNames {
 public:
  std::string name_for(const Layer& layer) {
    const std::string& given = std::visit([](const auto& any) -> const std::string& { return any.name; }, layer);
    const LayerClass kind = class_of(layer);
    std::string name = given;
    if (given.empty()) {
      const int count = counts_[kind.snake_name]++;
      name = kind.snake_name;
      if (count > 0) name.append("_").append(std::to_string(count));
    } else if (given.find('/') != std::string::npos) {
      throw UsageError("The name '" + given + "' of a " + std::string(kind.class_name) +
                       " layer holds a '/', which separates groups in files: use another character.");
    }
    if (!taken_.insert(name).second) {
      throw UsageError("Two layers have the name '" + name + "', the second of them a " + std::string(kind.class_name) +
                       ": give each layer a name of its own.");
    }
    return name;
  }

 private:
  std::map<std::string_view, int> counts_;
  std::set<std::string> taken_;
};

}  // namespace

Sequential::Sequential(std::vector<Layer> layers, std::string name) : name_(std::move(name)) {
  if (layers.empty() || !std::holds_alternative<Input>(layers.front())) {
    throw UsageError("The first layer of a model must be an Input, which tells the shape of one example" +
                     (layers.empty() ? std::string(", but there are no layers.")
                                     : ", but it is a " + std::string(class_of(layers.front()).class_name) +
                                           ": begin with e.g. Input({28, 28})."));
  }
  if (layers.size() == 1) throw UsageError("The model has nothing but an Input: add layers that compute something.");

  LayerNames names;
  layers_.reserve(layers.size());
  for (const Layer& layer : layers) {
    LayerInfo info{.layer = layer,
                   .class_name = std::string(class_of(layer).class_name),
                   .name = names.name_for(layer),
                   .input_shape = {},
                   .output_shape = {},
                   .parameters = {}};
    if (!layers_.empty()) {
      if (std::holds_alternative<Input>(layer)) {
        throw UsageError("Layer " + std::to_string(layers_.size()) + " is a second Input, '" + info.name +
                         "': a model has one, as its first layer.");
      }
      info.input_shape = layers_.back().output_shape;
    }
    infer(info);
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
