// Reads Keras' files by the order of things in them, since names differ from version to version.
#include "checkpoint/keras_h5_read.hpp"

#include "checkpoint/hdf5_reader.hpp"
#include "checkpoint/keras_config.hpp"
#include "core/digest.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

std::string path_of(std::string group, const std::string& name) {
  if (!group.ends_with('/')) group += '/';
  return group.append(name);
}

/// The names of all weights that a group lists, as paths, in order.
std::vector<std::string> weight_paths(const Hdf5Reader& reader, const std::string& root) {
  std::vector<std::string> paths;
  for (const std::string& layer : reader.texts(root, "layer_names")) {
    const std::string group = path_of(root, layer);
    for (const std::string& weight : reader.texts(group, "weight_names")) paths.push_back(path_of(group, weight));
  }
  return paths;
}

/// "iteration" of "SGD/iteration", and of Keras 2's "iteration:0".
std::string last_part(const std::string& name) {
  const std::string last = name.substr(name.rfind('/') + 1);
  return last.substr(0, last.find(':'));
}

void read_optimizer_state(const Hdf5Reader& reader, const Sequential& architecture, SavedTraining& training) {
  training.slots = slots_for(architecture, training.optimizer);
  const std::string root = "optimizer_weights";
  std::vector<std::string> paths;
  if (reader.has(root)) {
    for (const std::string& name : reader.texts(root, "weight_names")) {
      const std::string path = path_of(root, name);
      const std::string last = last_part(name);
      if (last == "iteration" || last == "iter") {
        training.iteration = reader.integer(path);
      } else if (last != "learning_rate") {  // training_config has it too
        paths.push_back(path);
      }
    }
  }
  if (training.iteration < 0) reader.fail("'" + root + "' counts " + std::to_string(training.iteration) + " steps");
  if (training.slots.empty()) return;  // tf_keras keeps slots even for plain SGD, which never uses them
  if (paths.empty()) {                 // compiled, but never trained
    for (SavedTensor& slot : training.slots) slot.values.assign(static_cast<std::size_t>(slot.shape.elements()), 0.0F);
    return;
  }
  if (paths.size() != training.slots.size()) {
    reader.fail("holds " + std::to_string(paths.size()) + " arrays of optimizer state, but " +
                std::string(name_of(training.optimizer)) + " needs " + std::to_string(training.slots.size()));
  }
  for (std::size_t i = 0; i < paths.size(); ++i) {
    training.slots[i].values = reader.floats(paths[i], training.slots[i].shape);
  }
}

std::optional<SavedState> read_state(const Hdf5Reader& reader) {
  const std::string root = state_group;
  if (!reader.has(root)) return std::nullopt;
  SavedState state;
  state.text = reader.text(root, "state").value_or("");
  for (std::size_t i = 0; reader.has(path_of(root, std::to_string(i))); ++i) {
    const std::string path = path_of(root, std::to_string(i));
    const std::optional<Shape> shape = reader.shape_of(path);
    if (!shape) reader.fail("'" + path + "' is no array of numbers");
    state.arrays.push_back({path, *shape, reader.floats(path, *shape)});
  }
  if (reader.digest(root) != digest_of_state(state)) {
    reader.fail("its training state is not the one that was saved; the file is damaged, so use an earlier copy");
  }
  return state;
}

}  // namespace

std::vector<SavedTensor> read_listed_weights(const Hdf5Reader& reader, const std::string& root,
                                             const Sequential& architecture) {
  std::vector<SavedTensor> weights = weights_for(architecture);
  const std::vector<std::string> paths = weight_paths(reader, root);
  if (paths.size() != weights.size()) {
    reader.fail("holds " + std::to_string(paths.size()) + " weights, but the layers of the model have " +
                std::to_string(weights.size()));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i].values = reader.floats(paths[i], weights[i].shape);
  return weights;
}

std::uint64_t digest_of_state(const SavedState& state) {
  Digest digest;
  digest.add(state.text.data(), state.text.size());
  const std::uint64_t arrays = state.arrays.size();
  digest.add(&arrays, sizeof arrays);
  return digest.value();
}

std::uint64_t digest_of_configs(const std::string& model_config, const std::string& training_config) {
  Digest digest;
  for (const std::string* text : {&model_config, &training_config}) digest.add(text->data(), text->size());
  return digest.value();
}

SavedModel read_keras_h5(const std::filesystem::path& file) {
  const Hdf5Reader reader(file);
  const std::optional<std::string> model_config = reader.text("/", "model_config");
  if (!model_config) {
    reader.fail(
        "has no model_config, so it is not a whole model (perhaps weights only); save it with "
        "model.save(\"model.h5\")");
  }
  const std::optional<std::string> training_config = reader.text("/", "training_config");
  const std::optional<std::uint64_t> digest = reader.digest("/");
  if (digest && *digest != digest_of_configs(*model_config, training_config.value_or(""))) {
    reader.fail(
        "its model_config or training_config are not those that were saved; the file is damaged, so use an earlier "
        "copy");
  }
  SavedModel model{sequential_from_json(*model_config, file.string()), {}, {}};
  model.weights = read_listed_weights(reader, "model_weights", model.architecture);
  if (training_config) {
    model.training = training_from_json(*training_config, file.string());
    read_optimizer_state(reader, model.architecture, *model.training);
  }
  model.state = read_state(reader);
  return model;
}

}  // namespace lockstep
