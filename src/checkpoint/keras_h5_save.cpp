// Lays a model out as Keras does, in memory, and puts the file in place at once.
#include "checkpoint/atomic_file.hpp"
#include "checkpoint/hdf5_writer.hpp"
#include "checkpoint/keras_config.hpp"
#include "checkpoint/keras_h5.hpp"
#include "checkpoint/keras_h5_read.hpp"

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep {
namespace {

// Readers convert weights of Keras 1, which is also what a file without a version is taken for.
constexpr const char* keras_version = "3.0.0";
constexpr const char* backend = "tensorflow";

void write_weights(Hdf5Writer& writer, const SavedModel& model) {
  const std::string root = "model_weights";
  const std::vector<SavedTensor> expected = weights_for(model.architecture);
  writer.make_group(root);
  std::vector<std::string> layer_names;
  std::size_t next = 0;
  for (const LayerInfo& layer : std::span(model.architecture.layers()).subspan(1)) {  // Keras lists no InputLayer here
    layer_names.push_back(layer.name);
    const std::string group = root + "/" + layer.name;
    writer.make_group(group);
    std::vector<std::string> weight_names;
    for (std::size_t i = 0; i < layer.parameters.size(); ++i, ++next) {
      weight_names.push_back(expected[next].name);
      writer.write_floats(group + "/" + expected[next].name, expected[next].shape, model.weights[next].values);
    }
    writer.set_attribute(group, "weight_names", weight_names);
  }
  writer.set_attribute(root, "layer_names", layer_names);
  writer.set_attribute(root, "keras_version", keras_version);
  writer.set_attribute(root, "backend", backend);
}

void write_training(Hdf5Writer& writer, const Sequential& architecture, const SavedTraining& training) {
  const std::string root = "optimizer_weights";
  const std::vector<SavedTensor> expected = slots_for(architecture, training.optimizer);
  const std::string prefix = keras_name_of(training.optimizer) + "/";
  std::vector<std::string> names{prefix + "iteration"};
  writer.make_group(root);
  writer.write_scalar(root + "/" + names[0], training.iteration);
  if (const LearningRate& rate = learning_rate_of(training.optimizer); rate.is_constant()) {
    names.push_back(prefix + "learning_rate");
    writer.write_scalar(root + "/" + names[1], static_cast<float>(rate.at(0)));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    writer.write_floats(root + "/" + expected[i].name, expected[i].shape, training.slots[i].values);
    names.push_back(expected[i].name);
  }
  writer.set_attribute(root, "weight_names", names);
}

void write_state(Hdf5Writer& writer, const SavedState& state) {
  const std::string root = state_group;
  writer.make_group(root);
  writer.set_attribute(root, "state", state.text);
  writer.set_digest(root, digest_of_state(state));
  for (std::size_t i = 0; i < state.arrays.size(); ++i) {
    writer.write_floats(root + "/" + std::to_string(i), state.arrays[i].shape, state.arrays[i].values);
  }
}

}  // namespace

void save_keras_h5(const std::filesystem::path& file, const SavedModel& model) {
  check_values(model);
  Hdf5Writer writer(size_of_file(model));
  writer.set_attribute("/", "keras_version", keras_version);
  writer.set_attribute("/", "backend", backend);
  const std::string model_config = sequential_to_json(model.architecture);
  writer.set_attribute("/", "model_config", model_config);
  write_weights(writer, model);
  std::string training_config;
  if (model.training) {
    write_training(writer, model.architecture, *model.training);
    training_config = training_to_json(*model.training);
    writer.set_attribute("/", "training_config", training_config);
  }
  writer.set_digest("/", digest_of_configs(model_config, training_config));
  if (model.state) write_state(writer, *model.state);
  write_file_atomically(file, writer.finish());
}

}  // namespace lockstep
