// Which arrays a model and its optimizer consist of, in the order Keras keeps them.
#include "checkpoint/saved_model.hpp"

#include <algorithm>
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

std::string keras_name_of(const Optimizer& optimizer) {
  if (std::holds_alternative<SGD>(optimizer)) return "SGD";
  if (std::holds_alternative<Adam>(optimizer)) return "adam";
  if (std::holds_alternative<AdamW>(optimizer)) return "adamw";
  return "rmsprop";
}

}  // namespace lockstep
