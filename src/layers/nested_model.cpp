// See nested_model.hpp. Also replaces nested models by their layers.
#include "layers/nested_model.hpp"

#include "layers/input.hpp"
#include "layers/layer_registry.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/architecture.hpp>
#include <lockstep/layers/sequential.hpp>
#include <lockstep/layers/tensor.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

NestedModel::NestedModel(const Architecture& model_)
    : model(std::make_shared<const Architecture>(model_)), name(model_.has_automatic_name() ? "" : model_.name()) {}

std::string_view LayerTraits<NestedModel>::class_name_of(const NestedModel& nested) {
  return nested.model->is_sequential() ? "Sequential" : "Functional";
}

NestedModel LayerTraits<NestedModel>::blank() { return Sequential{Input({1}), Flatten()}; }

void LayerTraits<NestedModel>::infer(const NestedModel& nested, ShapeInference& shapes) {
  const Architecture& model = *nested.model;
  if (model.outputs().size() != 1) {
    shapes.fail(fmt::format("has {} outputs, but Lockstep nests models that have one", model.outputs().size()));
  }
  if (shapes.inputs().size() != model.inputs().size()) {
    shapes.fail(
        fmt::format("has {} inputs, but is called on {} tensors", model.inputs().size(), shapes.inputs().size()));
  }
  for (std::size_t i = 0; i < model.inputs().size(); ++i) {
    const Shape& expected = model.calls()[model.inputs()[i]].output_shape;
    if (shapes.inputs()[i] == expected) continue;
    shapes.fail(fmt::format("is called on {}, but its input '{}' has the shape {}", shapes.inputs()[i].to_string(),
                            model.layers()[model.calls()[model.inputs()[i]].layer].name, expected.to_string()));
  }
  for (const LayerInfo& layer : model.layers()) shapes.add_parameters(layer.parameters, layer.name + "/");
  shapes.set_output(model.output_shape());
}

Tensor Architecture::operator()(const Tensor& input) const { return (*this)(std::vector{input}); }

Tensor Architecture::operator()(std::initializer_list<Tensor> inputs) const {
  return (*this)(std::vector<Tensor>(inputs));
}

Tensor Architecture::operator()(const std::vector<Tensor>& inputs) const {
  return {Layer(NestedModel(*this)), identity_, inputs};
}

/// Nested models that are called several times in one another multiply: a small file could describe billions of calls.
/// The deepest networks of keras.applications have about 2,000.
constexpr std::size_t max_calls = 10'000;

/// Adds the layers of each nested model once, and its calls for each call of the model.
class Architecture::Flattener {
 public:
  Architecture run(const Architecture& model) {
    flat_.identity_ = model.identity_;
    flat_.name_ = model.name_;
    flat_.has_automatic_name_ = model.has_automatic_name_;
    flat_.is_sequential_ = model.is_sequential_;
    const Places places = add_layers(model, "", false);
    flat_.outputs_ = add_calls(model, places, nullptr);
    flat_.output_names_ = model.output_names_;
    return std::move(flat_);
  }

 private:
  /// For each layer of a model, its index in the flat one.
  struct Places {
    std::vector<int> layers;     ///< -1 for nested models and for their Inputs
    std::vector<Places> nested;  ///< empty for other layers
  };

  Places add_layers(const Architecture& model, const std::string& prefix, bool is_nested) {
    Places places;
    for (const LayerInfo& layer : model.layers()) {
      int place = -1;
      Places inner;
      if (const auto* nested = std::get_if<NestedModel>(&layer.layer)) {
        inner = add_layers(*nested->model, prefix + layer.name + "/", true);
      } else if (!is_nested || !std::holds_alternative<Input>(layer.layer)) {
        place = static_cast<int>(flat_.layers_.size());
        flat_.layers_.push_back(layer);
        flat_.layers_.back().name.insert(0, prefix);
      }
      places.layers.push_back(place);
      places.nested.push_back(std::move(inner));
    }
    return places;
  }

  /// Returns the flat calls of the model's outputs. `inputs`: those that a nested model is called on.
  std::vector<int> add_calls(const Architecture& model, const Places& places, const std::vector<int>* inputs) {
    std::vector<int> flat(model.calls().size());
    const auto of = [&flat](const std::vector<int>& calls) {
      std::vector<int> found(calls.size());
      std::ranges::transform(calls, found.begin(), [&flat](int call) { return flat[call]; });
      return found;
    };
    for (std::size_t c = 0; c < flat.size(); ++c) {
      const LayerCall& call = model.calls()[c];
      const Layer& layer = model.layers()[call.layer].layer;
      if (const auto* nested = std::get_if<NestedModel>(&layer)) {
        const std::vector<int> read = of(call.inputs);
        flat[c] = add_calls(*nested->model, places.nested[call.layer], &read).front();
      } else if (inputs != nullptr && std::holds_alternative<Input>(layer)) {
        flat[c] = inputs->at(std::ranges::find(model.inputs(), static_cast<int>(c)) - model.inputs().begin());
        require_same_type(model, std::get<Input>(layer), flat_.layers_[flat_.calls_[flat[c]].layer].layer);
      } else {
        flat[c] = static_cast<int>(flat_.calls_.size());
        flat_.calls_.push_back(
            {.layer = places.layers[call.layer], .inputs = of(call.inputs), .output_shape = call.output_shape});
        if (flat_.calls_.size() > max_calls) {
          throw UsageError(
              fmt::format("the model '{}' calls layers more than {} times, counting those of nested models for each of "
                          "their calls; "
                          "call nested models less often",
                          flat_.name_, max_calls));
        }
      }
    }
    if (inputs == nullptr) flat_.inputs_ = of(model.inputs());
    return of(model.outputs());
  }

  /// Keras cuts what a nested model is called on to its Input's type. That changes nothing if it is an Input's already.
  static void require_same_type(const Architecture& model, const Input& input, const Layer& given) {
    const auto* outer = std::get_if<Input>(&given);
    if (input.dtype == InputType::float32 || (outer != nullptr && outer->dtype == input.dtype)) return;
    throw UsageError(
        fmt::format("the model '{}' takes {} and is called on other numbers, which Keras would cut to it; "
                    "call it on an Input of that dtype, or make its own float32",
                    model.name(), enum_name(input.dtype)));
  }

  Architecture flat_;
};

Architecture Architecture::flattened() const { return Flattener().run(*this); }

}  // namespace lockstep
