// Builds a whole-model file in memory, with Keras' layout, and writes it atomically.
#include "checkpoint/atomic_file.hpp"
#include "checkpoint/hdf5/hdf5_writer.hpp"
#include "checkpoint/keras/keras_config.hpp"
#include "checkpoint/keras/keras_h5.hpp"
#include "checkpoint/keras/keras_h5_read.hpp"
#include "optimizers/optimizer_registry.hpp"

#include <fmt/format.h>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep {
namespace {

// Readers treat a file without a version as one of Keras 1 and convert its weights.
constexpr const char* keras_version = "3.0.0";
constexpr const char* backend = "tensorflow";

void write_weights(Hdf5Writer& writer, const ModelData& model) {
  const std::string root = "model_weights";
  const std::vector<NamedTensor> expected = weights_for(model.architecture);
  writer.create_group(root);
  std::vector<std::string> layer_names;
  std::size_t next = 0;
  for (const LayerInfo& layer : layers_with_groups(model.architecture)) {
    layer_names.push_back(layer.name);
    const std::string group = root + "/" + layer.name;
    writer.create_group(group);
    std::vector<std::string> weight_names;
    for (const std::size_t parameter : listed_order(layer)) {
      const NamedTensor& weight = expected[next + parameter];
      weight_names.push_back(weight.name);
      writer.write_floats(group + "/" + weight.name, weight.shape, model.weights[next + parameter].values);
    }
    next += layer.parameters.size();
    writer.set_attribute(group, "weight_names", weight_names);
  }
  writer.set_attribute(root, "layer_names", layer_names);
  writer.set_attribute(root, "keras_version", keras_version);
  writer.set_attribute(root, "backend", backend);
}

void write_training(Hdf5Writer& writer, const Architecture& architecture, const CompileState& training) {
  const std::string root = "optimizer_weights";
  const std::vector<NamedTensor> expected = slots_for(architecture, training.optimizer);
  const std::string prefix = std::string(keras_instance_name(training.optimizer)) + "/";
  std::vector<std::string> names{prefix + "iteration"};
  writer.create_group(root);
  writer.write_scalar(root + "/" + names[0], training.iteration);
  if (const LearningRate& rate = learning_rate_of(training.optimizer); rate.is_constant()) {
    names.push_back(prefix + "learning_rate");
    writer.write_scalar(root + "/" + names[1], static_cast<float>(rate.at(0)));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    writer.write_floats(root + "/" + expected[i].name, expected[i].shape, training.slots[i].values);
    names.push_back(expected[i].name);
  }
  if (const auto last = last_variable(training.optimizer, training.iteration)) {
    names.push_back(prefix + "u_product");
    writer.write_scalar(root + "/" + names.back(), *last);
  }
  writer.set_attribute(root, "weight_names", names);
}

void write_state(Hdf5Writer& writer, const SerializedTrainingState& state) {
  const std::string root = training_state_group;
  writer.create_group(root);
  writer.set_attribute(root, "state", state.text);
  writer.set_digest(root, training_state_digest(state));
  for (std::size_t i = 0; i < state.arrays.size(); ++i) {
    writer.write_floats(fmt::format("{}/{}", root, i), state.arrays[i].shape, state.arrays[i].values);
  }
}

}  // namespace

void save_keras_h5(const std::filesystem::path& file, const ModelData& model, const WriteGuard& guard) {
  check_values(model);
  Hdf5Writer writer(estimate_file_size(model));
  writer.set_attribute("/", "keras_version", keras_version);
  writer.set_attribute("/", "backend", backend);
  const std::string model_config = architecture_to_json(model.architecture);
  writer.set_attribute("/", "model_config", model_config);
  write_weights(writer, model);
  std::string training_config;
  if (model.compile_state) {
    write_training(writer, model.architecture, *model.compile_state);
    training_config = training_config_to_json_of_classes(*model.compile_state, model.architecture);
    writer.set_attribute("/", "training_config", training_config);
  }
  writer.set_digest("/", config_digest(model_config, training_config));
  if (model.training_state) write_state(writer, *model.training_state);
  write_file_atomically(file, writer.finish(), guard);
}

}  // namespace lockstep
