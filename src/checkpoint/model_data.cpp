// See model_data.hpp.
#include "checkpoint/model_data.hpp"

#include "optimizers/optimizer_registry.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {
namespace {

/// Throws InternalError unless `given` has the shapes of `expected`.
void check_tensors(const std::vector<NamedTensor>& given, const std::vector<NamedTensor>& expected, const char* what) {
  if (given.size() != expected.size()) {
    throw InternalError(fmt::format("a model to be saved has {} {}, but needs {}; please report this", given.size(),
                                    what, expected.size()));
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto elements = static_cast<std::size_t>(expected[i].shape.elements());
    if (given[i].shape == expected[i].shape && given[i].values.size() == elements) continue;
    throw InternalError(fmt::format(
        "a model to be saved has {} values of shape {} for {}, whose shape is {}; please "
        "report this",
        given[i].values.size(), given[i].shape.to_string(), expected[i].name, expected[i].shape.to_string()));
  }
}

std::vector<NamedTensor> tensors_of(const Architecture& architecture, bool trainable_only) {
  std::vector<NamedTensor> tensors;
  for (const LayerInfo& layer : architecture.layers()) {
    for (const ParameterInfo& parameter : layer.parameters) {
      if (trainable_only && !parameter.trainable) continue;
      tensors.push_back({architecture.name() + "/" + layer.name + "/" + parameter.name, parameter.shape, {}});
    }
  }
  return tensors;
}

}  // namespace

std::vector<NamedTensor> weights_for(const Architecture& architecture) { return tensors_of(architecture, false); }

std::vector<NamedTensor> slots_for(const Architecture& architecture, const Optimizer& optimizer) {
  const std::vector<NamedTensor> weights = tensors_of(architecture, true);
  const Slots slots = slots_of(optimizer);
  std::vector<NamedTensor> tensors(weights.size() * slots.size());
  for (std::size_t weight = 0; weight < weights.size(); ++weight) {
    std::string path = weights[weight].name;
    std::replace(path.begin(), path.end(), '/', '_');
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      NamedTensor& tensor = tensors[slot_index(slots, slot, weight, weights.size())];
      tensor.name = fmt::format("{}/{}_{}", keras_instance_name(optimizer), path, slots[slot].name);
      tensor.shape = weights[weight].shape;
    }
  }
  return tensors;
}

void fill_initial_slots(const Optimizer& optimizer, std::vector<NamedTensor>& slots) {
  const Slots kinds = slots_of(optimizer);
  const std::size_t weights = kinds.empty() ? 0 : slots.size() / kinds.size();
  for (std::size_t weight = 0; weight < weights; ++weight) {
    for (std::size_t slot = 0; slot < kinds.size(); ++slot) {
      NamedTensor& tensor = slots.at(slot_index(kinds, slot, weight, weights));
      tensor.values.assign(static_cast<std::size_t>(tensor.shape.elements()), kinds[slot].initial_value);
    }
  }
}

void begin_anew(const Architecture& architecture, CompileState& training) {
  training.iteration = 0;
  training.slots = slots_for(architecture, training.optimizer);
  fill_initial_slots(training.optimizer, training.slots);
}

void check_values(const ModelData& model) {
  check_tensors(model.weights, weights_for(model.architecture), "weights");
  if (!model.compile_state) return;
  check_tensors(model.compile_state->slots, slots_for(model.architecture, model.compile_state->optimizer),
                "optimizer slots");
}

std::optional<std::string> find_nonfinite(const std::vector<NamedTensor>& tensors) {
  for (const NamedTensor& tensor : tensors) {
    const auto bad = std::ranges::find_if_not(tensor.values, [](float value) { return std::isfinite(value); });
    if (bad == tensor.values.end()) continue;
    return fmt::format("'{}' holds NaN or infinite values (the first at index {})", tensor.name,
                       bad - tensor.values.begin());
  }
  return std::nullopt;
}

std::size_t estimate_file_size(const ModelData& model) {
  constexpr std::size_t file_overhead = std::size_t{256} << 10U;  // configurations and HDF5's metadata
  constexpr std::size_t array_overhead = std::size_t{4} << 10U;   // headers of an array and of its groups
  std::size_t bytes = file_overhead;
  const auto add = [&](const std::vector<NamedTensor>& arrays) {
    for (const NamedTensor& array : arrays) bytes += array_overhead + array.values.size() * sizeof(float);
  };
  add(model.weights);
  if (model.compile_state) add(model.compile_state->slots);
  if (model.training_state) {
    bytes += model.training_state->text.size();  // includes the history, which grows with the run
    add(model.training_state->arrays);
  }
  return bytes;
}

}  // namespace lockstep
