// See keras_h5_read.hpp. Objects are identified by their order, since names differ between versions of Keras.
#include "checkpoint/keras/keras_h5_read.hpp"

#include "checkpoint/hdf5/hdf5_reader.hpp"
#include "checkpoint/keras/config_reader.hpp"
#include "checkpoint/keras/keras_config.hpp"
#include "checkpoint/keras/stored_learning_rate.hpp"
#include "core/digest.hpp"
#include "optimizers/optimizer_registry.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

std::string path_of(std::string group, const std::string& name) {
  if (!group.ends_with('/')) group += '/';
  return group.append(name);
}

/// The paths of all weights that a group lists, in order.
std::vector<std::string> weight_paths(const Hdf5Reader& reader, const std::string& root) {
  std::vector<std::string> paths;
  for (const std::string& layer : reader.read_strings(root, "layer_names")) {
    const std::string group = path_of(root, layer);
    for (const std::string& weight : reader.read_strings(group, "weight_names"))
      paths.push_back(path_of(group, weight));
  }
  return paths;
}

/// "iteration" of "SGD/iteration", and of Keras 2's "iteration:0".
std::string base_name(const std::string& name) {
  const std::string last = name.substr(name.rfind('/') + 1);
  return last.substr(0, last.find(':'));
}

/// Keras' optimizers before TensorFlow 2.11, now tf_keras.optimizers.legacy, store all arrays of one kind and then
/// those of the next ("Adam/dense/kernel/m:0"); later ones store the arrays of one weight together
/// ("Adam/m/dense/kernel:0").
bool is_of_legacy_optimizer(const std::vector<std::string>& paths) {
  constexpr std::array<std::string_view, 10> kinds{"m",  "v",          "vhat",      "rms",         "momentum",
                                                   "mg", "accum_grad", "accum_var", "accumulator", "linear"};
  return std::ranges::any_of(
      paths, [&](const std::string& path) { return std::ranges::find(kinds, base_name(path)) != kinds.end(); });
}

void read_optimizer_state(const Hdf5Reader& reader, const Architecture& architecture, CompileState& training) {
  training.slots = slots_for(architecture, training.optimizer);
  const std::string root = "optimizer_weights";
  std::vector<std::string> paths;
  if (reader.has(root)) {
    for (const std::string& name : reader.read_strings(root, "weight_names")) {
      const std::string path = path_of(root, name);
      const std::string last = base_name(name);
      if (last == "iteration" || last == "iter") {
        training.iteration = reader.read_integer(path);
      } else if (last != "learning_rate") {
        paths.push_back(path);
      } else if (const std::optional<Shape> shape = reader.shape_of(path)) {
        const std::vector<float> rate = reader.read_floats(path, *shape);
        if (rate.size() == 1 && !take_learning_rate(training, rate.front(), reader))
          return begin_anew(architecture, training);
      }
    }
  }
  if (training.iteration < 0) reader.fail(fmt::format("'{}' has the negative iteration {}", root, training.iteration));
  if (training.slots.empty()) return;  // tf_keras stores slots even for plain SGD, which does not use them
  if (paths.empty()) {                 // compiled, but never trained
    fill_initial_slots(training.optimizer, training.slots);
    return;
  }
  if (slots_of(training.optimizer).size() > 1 && is_of_legacy_optimizer(paths)) {
    training.refusals.optimizer =
        reader.describe(fmt::format("holds the state of a legacy {} (of TensorFlow 2.10 or earlier), which Lockstep "
                                    "does not read; choose an optimizer "
                                    "with --optimizer, which begins anew, or compile the model with a new one",
                                    keras_name(training.optimizer)));
    return begin_anew(architecture, training);
  }
  const std::size_t trailing = last_variable(training.optimizer, 0) ? 1 : 0;  // follows from the iteration
  if (paths.size() != training.slots.size() + trailing) {
    training.refusals.optimizer =
        reader.describe(fmt::format("holds {} arrays of optimizer state, but {} needs {} for the weights that are "
                                    "trained; compile the model with a "
                                    "new optimizer",
                                    paths.size(), keras_name(training.optimizer), training.slots.size() + trailing));
    return begin_anew(architecture, training);
  }
  for (std::size_t i = 0; i < training.slots.size(); ++i) {
    training.slots[i].values = reader.read_floats(paths[i], training.slots[i].shape);
  }
}

std::optional<SerializedTrainingState> read_state(const Hdf5Reader& reader) {
  const std::string root = training_state_group;
  if (!reader.has(root)) return std::nullopt;
  SerializedTrainingState state;
  state.text = reader.read_string(root, "state").value_or("");
  for (std::size_t i = 0; reader.has(path_of(root, std::to_string(i))); ++i) {
    const std::string path = path_of(root, std::to_string(i));
    const std::optional<Shape> shape = reader.shape_of(path);
    if (!shape) reader.fail(fmt::format("'{}' is not a floating-point array", path));
    state.arrays.push_back({path, *shape, reader.read_floats(path, *shape)});
  }
  if (reader.read_digest(root) != training_state_digest(state)) {
    reader.fail("its training state differs from the one that was saved; the file is damaged, so use an earlier copy");
  }
  return state;
}

}  // namespace

std::vector<NamedTensor> read_listed_weights(const Hdf5Reader& reader, const std::string& root,
                                             const Architecture& architecture) {
  std::vector<NamedTensor> weights = weights_for(architecture);
  const std::vector<std::string> paths = weight_paths(reader, root);
  if (paths.size() != weights.size()) {
    reader.fail(fmt::format("holds {} weights, but the layers of the model have {}", paths.size(), weights.size()));
  }
  std::size_t first = 0;
  std::size_t next = 0;
  for (const LayerInfo& layer : architecture.layers()) {
    std::vector<std::size_t> order = listed_order(layer);
    // Keras lists no weights of a model that is not trainable first, even if some of its layers are.
    const auto* const nested = std::get_if<NestedModel>(&layer.layer);
    if (nested != nullptr && !nested->trainable) std::ranges::sort(order);
    for (const std::size_t parameter : order) {
      NamedTensor& weight = weights[first + parameter];
      weight.values = reader.read_floats(paths[next++], weight.shape);
    }
    first += layer.parameters.size();
  }
  return weights;
}

std::vector<std::size_t> listed_order(const LayerInfo& layer) {
  std::vector<std::size_t> order(layer.parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // clang 14 cannot compile std::ranges::stable_partition of libstdc++
  std::stable_partition(order.begin(), order.end(),
                        [&](std::size_t parameter) { return layer.parameters[parameter].trainable; });
  return order;
}

std::uint64_t training_state_digest(const SerializedTrainingState& state) {
  Digest digest;
  digest.add(state.text.data(), state.text.size());
  const std::uint64_t arrays = state.arrays.size();
  digest.add(&arrays, sizeof arrays);
  return digest.value();
}

std::uint64_t config_digest(const std::string& config, const std::string& other) {
  Digest digest;
  for (const std::string* text : {&config, &other}) digest.add(text->data(), text->size());
  return digest.value();
}

ModelData read_keras_h5(const std::filesystem::path& file) {
  const Hdf5Reader reader(file);
  const std::optional<std::string> model_config = reader.read_string("/", "model_config");
  if (!model_config) {
    reader.fail(
        "has no model_config, so it is not a whole model (perhaps weights only); save it with "
        "model.save(\"model.h5\")");
  }
  const std::optional<std::string> training_config = reader.read_string("/", "training_config");
  const std::optional<std::uint64_t> digest = reader.read_digest("/");
  if (digest && *digest != config_digest(*model_config, training_config.value_or(""))) {
    reader.fail(
        "its model_config or training_config differs from the one that was saved; the file is damaged, so use an "
        "earlier copy");
  }
  const KerasVersion version = to_keras_version(reader.read_string("/", "keras_version").value_or(""));
  ModelData model{model_of_weights_from_json(*model_config, file.string(), version), {}, {}};
  model.weights = read_listed_weights(reader, "model_weights", model.architecture);
  if (training_config) {
    model.compile_state = training_config_from_json(*training_config, file.string(), model.architecture,
                                                    UnsupportedCompilation::note, version);
    if (version == KerasVersion::two) refuse_rules_of_keras2(*model.compile_state, file.string());
    if (model.compile_state->refusals.optimizer.empty()) {
      read_optimizer_state(reader, model.architecture, *model.compile_state);
    } else {
      begin_anew(model.architecture, *model.compile_state);
    }
  }
  model.training_state = read_state(reader);
  return model;
}

}  // namespace lockstep
