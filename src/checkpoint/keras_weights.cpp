// See keras_weights.hpp.
#include "checkpoint/keras_weights.hpp"

#include "checkpoint/atomic_file.hpp"
#include "checkpoint/guarded_read.hpp"
#include "checkpoint/hdf5_reader.hpp"
#include "checkpoint/hdf5_writer.hpp"
#include "checkpoint/keras_h5_read.hpp"

#include <lockstep/core/error.hpp>

#include <cctype>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// Keras' names of a layer's group: "conv2d", "max_pooling2d", "batch_normalization_1".
class GroupNames {
 public:
  std::string next(const std::string& class_name) {
    std::string name;
    for (const char letter : class_name) {
      const bool upper = std::isupper(static_cast<unsigned char>(letter)) != 0;
      const bool after_lower = !name.empty() && std::islower(static_cast<unsigned char>(name.back())) != 0;
      if (upper && after_lower) name += '_';
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    }
    const int count = counts_[name]++;
    if (count > 0) name.append("_").append(std::to_string(count));
    return name;
  }

 private:
  std::map<std::string, int> counts_;
};

std::string variables_of(const std::string& object) { return object + "/vars"; }

constexpr const char* optimizer_group = "optimizer";

void read_optimizer(const Hdf5Reader& reader, const Sequential& architecture, SavedTraining& training) {
  training.iteration = 0;
  training.slots = slots_for(architecture, training.optimizer);
  const std::string group = variables_of(optimizer_group);
  const std::size_t found = reader.has(group) ? reader.children(group).size() : 0;
  const auto variable = [&group](std::size_t index) { return group + "/" + std::to_string(index); };
  const LearningRate known_rate = learning_rate_of(training.optimizer);
  const std::size_t scalars = known_rate.is_constant() ? 2 : 1;  // iteration and, unless there is a schedule, the rate
  if (found >= scalars) {
    training.iteration = reader.integer(variable(0));
    if (training.iteration < 0) reader.fail("'" + group + "' counts " + std::to_string(training.iteration) + " steps");
  }
  if (found >= scalars && known_rate.is_constant()) {
    // What is a double in JSON is a float here: only another value is taken.
    const float rate = reader.floats(variable(1), Shape{}).front();
    if (rate != static_cast<float>(known_rate.at(0))) set_learning_rate(training.optimizer, rate);
  }
  if (found == 0 || found == scalars) {  // compiled, but never trained
    for (SavedTensor& slot : training.slots) slot.values.assign(static_cast<std::size_t>(slot.shape.elements()), 0.0F);
    return;
  }
  if (found != scalars + training.slots.size()) {
    reader.fail("holds " + std::to_string(found) + " variables of an optimizer, but " +
                std::string(name_of(training.optimizer)) + " needs " + std::to_string(scalars + training.slots.size()));
  }
  for (std::size_t i = 0; i < training.slots.size(); ++i) {
    training.slots[i].values = reader.floats(variable(scalars + i), training.slots[i].shape);
  }
}

}  // namespace

std::vector<std::byte> keras_weights_image(const SavedModel& model) {
  check_values(model);
  Hdf5Writer writer(size_of_file(model));
  writer.make_group("vars");
  writer.set_attribute("vars", "name", model.architecture.name());
  writer.make_group("layers");
  GroupNames names;
  std::size_t next = 0;
  for (const LayerInfo& layer : std::span(model.architecture.layers()).subspan(1)) {  // an InputLayer is not listed
    const std::string group = variables_of("layers/" + names.next(layer.class_name));
    writer.make_group(group);
    writer.set_attribute(group, "name", layer.name);
    for (std::size_t i = 0; i < layer.parameters.size(); ++i, ++next) {
      writer.write_floats(group + "/" + std::to_string(i), model.weights[next].shape, model.weights[next].values);
    }
  }
  if (model.training) {
    const std::string group = variables_of(optimizer_group);
    writer.make_group(group);
    writer.set_attribute(group, "name", keras_name_of(model.training->optimizer));
    writer.write_scalar(group + "/0", model.training->iteration);
    const LearningRate& rate = learning_rate_of(model.training->optimizer);
    if (rate.is_constant()) writer.write_scalar(group + "/1", static_cast<float>(rate.at(0)));
    const std::size_t scalars = rate.is_constant() ? 2 : 1;
    for (std::size_t i = 0; i < model.training->slots.size(); ++i) {
      const SavedTensor& slot = model.training->slots[i];
      writer.write_floats(group + "/" + std::to_string(scalars + i), slot.shape, slot.values);
    }
  }
  const std::span<const std::byte> image = writer.finish();
  return {image.begin(), image.end()};
}

void save_keras_weights(const std::filesystem::path& file, const SavedModel& model) {
  if (!file.filename().string().ends_with(".weights.h5")) {
    throw UsageError("Cannot save weights as " + file.string() + ": the name must end in .weights.h5.");
  }
  write_file_atomically(file, keras_weights_image(model));
}

SavedModel read_keras_weights(const Hdf5Reader& reader, SavedModel model) {
  if (!reader.has("layers")) {
    if (!reader.has_texts("/", "layer_names")) {
      reader.fail(
          "has neither a group 'layers' nor a list 'layer_names', so it holds no weights as Keras saves them; save "
          "them "
          "with model.save_weights(\"model.weights.h5\")");
    }
    model.weights = read_listed_weights(reader, "/", model.architecture);
    model.training.reset();
    return model;
  }
  std::map<std::string, std::size_t> found;  // weights by the names of layers
  for (const std::string& layer : reader.children("layers")) {
    const std::string group = variables_of("layers/" + layer);
    if (reader.has(group)) found[layer] = reader.children(group).size();
  }
  model.weights = weights_for(model.architecture);
  GroupNames names;
  std::size_t next = 0;
  for (const LayerInfo& layer : std::span(model.architecture.layers()).subspan(1)) {
    const std::string name = names.next(layer.class_name);
    const std::size_t count = std::exchange(found[name], 0);
    if (count != layer.parameters.size()) {
      reader.fail("holds " + std::to_string(count) + " weights of the layer '" + name + "', but the model's (named '" +
                  layer.name + "') has " + std::to_string(layer.parameters.size()));
    }
    for (std::size_t i = 0; i < count; ++i, ++next) {
      SavedTensor& weight = model.weights[next];
      weight.values = reader.floats(variables_of("layers/" + name) + "/" + std::to_string(i), weight.shape);
    }
  }
  for (const auto& [name, count] : found) {
    if (count != 0) {
      reader.fail("holds " + std::to_string(count) + " weights of a layer '" + name + "', which the model lacks");
    }
  }
  if (model.training) read_optimizer(reader, model.architecture, *model.training);
  return model;
}

SavedModel load_keras_weights(const std::filesystem::path& file, SavedModel model) {
  return read_model_guarded(file, [&] { return read_keras_weights(Hdf5Reader(file), std::move(model)); });
}

}  // namespace lockstep
