// Which arrays a model and its optimizer consist of, in the order Keras keeps them.
#include "checkpoint/saved_model.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

/// The kinds of slots an optimizer has, and whether all slots of one weight come before those of the next.
struct SlotKinds {
  std::vector<std::string_view> kinds;
  bool interleaved = false;
};

SlotKinds slot_kinds_of(const Optimizer& optimizer) {
  if (const auto* sgd = std::get_if<SGD>(&optimizer)) {
    return sgd->momentum != 0 ? SlotKinds{{"momentum"}} : SlotKinds{};
  }
  if (const auto* rmsprop = std::get_if<RMSprop>(&optimizer)) {
    SlotKinds slots{{"velocity"}};
    if (rmsprop->momentum > 0) slots.kinds.emplace_back("momentum");
    if (rmsprop->centered) slots.kinds.emplace_back("average_gradient");
    return slots;
  }
  return {{"momentum", "velocity"}, true};  // Adam and AdamW
}

/// Caller's values against what the model consists of.
void check_tensors(const std::vector<SavedTensor>& given, const std::vector<SavedTensor>& expected, const char* what) {
  if (given.size() != expected.size()) {
    throw InternalError("A model to be saved has " + std::to_string(given.size()) + " " + what + ", but needs " +
                        std::to_string(expected.size()) + "; please report this.");
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto elements = static_cast<std::size_t>(expected[i].shape.elements());
    if (given[i].shape == expected[i].shape && given[i].values.size() == elements) continue;
    throw InternalError("A model to be saved has " + std::to_string(given[i].values.size()) + " values of shape " +
                        given[i].shape.to_string() + " for " + expected[i].name + ", whose shape is " +
                        expected[i].shape.to_string() + "; please report this.");
  }
}

std::vector<SavedTensor> tensors_of(const Sequential& architecture, bool trainable_only) {
  std::vector<SavedTensor> tensors;
  for (const LayerInfo& layer : architecture.layers()) {
    for (const ParameterInfo& parameter : layer.parameters) {
      if (trainable_only && !parameter.trainable) continue;
      tensors.push_back({architecture.name() + "/" + layer.name + "/" + parameter.name, parameter.shape, {}});
    }
  }
  return tensors;
}

}  // namespace

std::vector<SavedTensor> weights_for(const Sequential& architecture) { return tensors_of(architecture, false); }

std::vector<SavedTensor> slots_for(const Sequential& architecture, const Optimizer& optimizer) {
  const std::vector<SavedTensor> weights = tensors_of(architecture, true);
  const auto [kinds, interleaved] = slot_kinds_of(optimizer);
  const std::string prefix = keras_name_of(optimizer) + "/";
  const auto slot_of = [&](const SavedTensor& weight, std::string_view kind) {
    std::string path = weight.name;
    std::replace(path.begin(), path.end(), '/', '_');
    return SavedTensor{prefix + path + "_" + std::string(kind), weight.shape, {}};
  };
  std::vector<SavedTensor> slots;
  if (interleaved) {
    for (const SavedTensor& weight : weights) {
      for (const std::string_view kind : kinds) slots.push_back(slot_of(weight, kind));
    }
  } else {
    for (const std::string_view kind : kinds) {
      for (const SavedTensor& weight : weights) slots.push_back(slot_of(weight, kind));
    }
  }
  return slots;
}

void check_values(const SavedModel& model) {
  check_tensors(model.weights, weights_for(model.architecture), "weights");
  if (!model.training) return;
  check_tensors(model.training->slots, slots_for(model.architecture, model.training->optimizer), "optimizer slots");
}

std::size_t size_of_file(const SavedModel& model) {
  constexpr std::size_t beside = std::size_t{256} << 10U;      // configurations, and what HDF5 keeps of the file
  constexpr std::size_t beside_array = std::size_t{4} << 10U;  // its headers, and its share of the groups'
  std::size_t bytes = beside;
  const auto add = [&](const std::vector<SavedTensor>& arrays) {
    for (const SavedTensor& array : arrays) bytes += beside_array + array.values.size() * sizeof(float);
  };
  add(model.weights);
  if (model.training) add(model.training->slots);
  if (model.state) {
    bytes += model.state->text.size();  // a long run's history
    add(model.state->arrays);
  }
  return bytes;
}

std::string keras_name_of(const Optimizer& optimizer) {
  if (std::holds_alternative<SGD>(optimizer)) return "SGD";
  if (std::holds_alternative<Adam>(optimizer)) return "adam";
  if (std::holds_alternative<AdamW>(optimizer)) return "adamw";
  return "rmsprop";
}

}  // namespace lockstep
