// See sequential.hpp.
#include <lockstep/layers/sequential.hpp>

#include "layers/layer_registry.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <cstddef>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

/// Each layer is called on the output of the layer before it.
LayerGraph to_chain(std::vector<Layer> layers) {
  if (const auto* first = layers.empty() ? nullptr : std::get_if<NestedModel>(&layers.front())) {
    layers.insert(layers.begin(), Input(first->model->input_shape(), {}, first->model->input_type()));
  }
  if (layers.empty() || !std::holds_alternative<Input>(layers.front())) {
    throw UsageError("the first layer of a model must be an Input, which gives the shape of one example" +
                     (layers.empty() ? std::string(", but there are no layers")
                                     : ", but it is a " + std::string(class_name_of(layers.front())) +
                                           "; begin with e.g. Input({28, 28})"));
  }
  if (layers.size() == 1)
    throw UsageError("the model consists of nothing but an Input; add layers that compute something");
  LayerGraph graph;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const int index = static_cast<int>(i);
    if (i > 0 && std::holds_alternative<Input>(layers[i])) {
      throw UsageError(fmt::format("layer {} is a second Input{}; a Sequential model has only one, as its first layer",
                                   i, name_of(layers[i]).empty() ? "" : ", '" + name_of(layers[i]) + "'"));
    }
    graph.calls.push_back({.layer = index, .inputs = i == 0 ? std::vector<int>{} : std::vector<int>{index - 1}});
  }
  graph.inputs = {0};
  graph.outputs = {static_cast<int>(layers.size()) - 1};
  graph.layers = std::move(layers);
  return graph;
}

}  // namespace

Sequential::Sequential(std::vector<Layer> layers, std::string name)
    : Architecture(std::move(name), to_chain(std::move(layers)), true) {}

}  // namespace lockstep
