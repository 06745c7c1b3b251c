// See keras_weights.hpp.
#include "checkpoint/keras/keras_weights.hpp"

#include "checkpoint/atomic_file.hpp"
#include "checkpoint/hdf5/hdf5_reader.hpp"
#include "checkpoint/hdf5/hdf5_writer.hpp"
#include "checkpoint/keras/keras_config.hpp"
#include "checkpoint/keras/keras_h5_read.hpp"
#include "checkpoint/keras/stored_learning_rate.hpp"
#include "checkpoint/subprocess_read.hpp"
#include "layers/layer_registry.hpp"
#include "optimizers/optimizer_registry.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

/// Generates Keras' names of layers' groups: "conv2d", "max_pooling2d", "batch_normalization_1".
class GroupNames {
 public:
  std::string next(const std::string& class_name) {
    std::string name = to_snake_case(class_name);
    const int count = counts_[name]++;
    if (count > 0) name.append("_").append(std::to_string(count));
    return name;
  }

 private:
  std::map<std::string, int> counts_;
};

std::string variables_of(const std::string& object) { return object + "/vars"; }

constexpr const char* optimizer_group = "optimizer";

/// Calls visit(group, layer, index of its first weight) for each layer. The layers of a nested model, which is also
/// visited, are in groups of its group. Returns the index after the last weight.
template <typename Visit>
std::size_t for_each_group(const Architecture& architecture, const std::string& root, std::size_t next,
                           const Visit& visit) {
  GroupNames names;
  for (const LayerInfo& layer : layers_with_groups(architecture)) {
    const std::string group = fmt::format("{}layers/{}", root, names.next(layer.class_name));
    visit(group, layer, next);
    if (const auto* nested = std::get_if<NestedModel>(&layer.layer)) {
      next = for_each_group(*nested->model, group + "/", next, visit);
    } else {
      next += layer.parameters.size();
    }
  }
  return next;
}

/// The name of a group at the root, for messages; else its path.
std::string without_layers(const std::string& group) { return group.substr(group.find('/') + 1); }

/// The weights in a layer's own group.
std::size_t count_own_weights(const LayerInfo& layer) {
  return std::holds_alternative<NestedModel>(layer.layer) ? 0 : layer.parameters.size();
}

/// The number of weights in each group of layers, those of nested models included.
void count_weights(const Hdf5Reader& reader, const std::string& root, std::map<std::string, std::size_t>& counts) {
  const std::string layers = root + "layers";
  if (!reader.has(layers)) return;
  for (const std::string& layer : reader.child_names(layers)) {
    const std::string group = layers + "/" + layer;
    if (reader.has(variables_of(group))) counts[group] = reader.child_names(variables_of(group)).size();
    count_weights(reader, group + "/", counts);
  }
}

void read_optimizer(const Hdf5Reader& reader, const Architecture& architecture, CompileState& training,
                    KerasVersion version) {
  begin_anew(architecture, training);
  const std::string group = variables_of(optimizer_group);
  const std::size_t found = reader.has(group) ? reader.child_names(group).size() : 0;
  const auto variable = [&group](std::size_t index) { return fmt::format("{}/{}", group, index); };
  const LearningRate known_rate = learning_rate_of(training.optimizer);
  // The iteration and, if it is constant, the learning rate.
  const std::size_t scalars = known_rate.is_constant() && version == KerasVersion::three ? 2 : 1;
  if (found >= scalars) {
    training.iteration = reader.read_integer(variable(0));
    if (training.iteration < 0)
      reader.fail(fmt::format("'{}' has the negative iteration {}", group, training.iteration));
  }
  if (found >= scalars && scalars == 2 &&
      !take_learning_rate(training, reader.read_floats(variable(1), Shape{}).front(), reader))
    return begin_anew(architecture, training);
  if (found == 0 || found == scalars) return;                          // compiled, but never trained
  if (version == KerasVersion::two && training.slots.empty()) return;  // tf_keras stores slots even for plain SGD
  const std::size_t trailing = last_variable(training.optimizer, 0) ? 1 : 0;  // follows from the iteration
  if (found != scalars + training.slots.size() + trailing) {
    training.refusals.optimizer =
        reader.describe(fmt::format("holds {} variables of an optimizer, but {} needs {} for the weights that are "
                                    "trained; compile the model with a "
                                    "new optimizer",
                                    found, keras_name(training.optimizer), scalars + training.slots.size() + trailing));
    return begin_anew(architecture, training);
  }
  for (std::size_t i = 0; i < training.slots.size(); ++i) {
    training.slots[i].values = reader.read_floats(variable(scalars + i), training.slots[i].shape);
  }
}

}  // namespace

std::span<const std::byte> write_keras_weights(Hdf5Writer& writer, const ModelData& model,
                                               std::optional<std::uint64_t> archive_digest) {
  check_values(model);
  if (archive_digest) writer.set_digest("/", *archive_digest);
  writer.create_group("vars");
  writer.set_attribute("vars", "name", model.architecture.name());
  writer.create_group("layers");
  for_each_group(model.architecture, "", 0,
                 [&](const std::string& layer_group, const LayerInfo& layer, std::size_t first) {
                   const std::string group = variables_of(layer_group);
                   writer.create_group(group);
                   writer.set_attribute(group, "name", layer.name);
                   for (std::size_t i = 0; i < count_own_weights(layer); ++i) {
                     const NamedTensor& weight = model.weights[first + i];
                     writer.write_floats(fmt::format("{}/{}", group, i), weight.shape, weight.values);
                   }
                 });
  if (model.compile_state) {
    const std::string group = variables_of(optimizer_group);
    writer.create_group(group);
    writer.set_attribute(group, "name", std::string(keras_instance_name(model.compile_state->optimizer)));
    writer.write_scalar(group + "/0", model.compile_state->iteration);
    const LearningRate& rate = learning_rate_of(model.compile_state->optimizer);
    if (rate.is_constant()) writer.write_scalar(group + "/1", static_cast<float>(rate.at(0)));
    const std::size_t scalars = rate.is_constant() ? 2 : 1;
    for (std::size_t i = 0; i < model.compile_state->slots.size(); ++i) {
      const NamedTensor& slot = model.compile_state->slots[i];
      writer.write_floats(fmt::format("{}/{}", group, scalars + i), slot.shape, slot.values);
    }
    if (const auto last = last_variable(model.compile_state->optimizer, model.compile_state->iteration)) {
      writer.write_scalar(fmt::format("{}/{}", group, scalars + model.compile_state->slots.size()), *last);
    }
  }
  return writer.finish();
}

void save_keras_weights(const std::filesystem::path& file, const ModelData& model, const WriteGuard& guard) {
  if (!file.filename().string().ends_with(".weights.h5")) {
    throw UsageError(fmt::format("cannot save weights as {}: the name must end in .weights.h5", file.string()));
  }
  Hdf5Writer writer(estimate_file_size(model));
  write_file_atomically(file, write_keras_weights(writer, model), guard);
}

ModelData read_keras_weights(const Hdf5Reader& reader, ModelData model, KerasVersion version) {
  if (!reader.has("layers")) {
    if (!reader.has_strings("/", "layer_names")) {
      reader.fail(
          "has neither a group 'layers' nor a list 'layer_names', so it is not a weights file of Keras; save the "
          "weights with model.save_weights(\"model.weights.h5\")");
    }
    model.weights = read_listed_weights(reader, "/", model.architecture);
    model.compile_state.reset();
    return model;
  }
  std::map<std::string, std::size_t> found;
  count_weights(reader, "", found);
  model.weights = weights_for(model.architecture);
  for_each_group(model.architecture, "", 0, [&](const std::string& group, const LayerInfo& layer, std::size_t first) {
    const std::size_t count = std::exchange(found[group], 0);
    if (count != count_own_weights(layer)) {
      reader.fail(fmt::format("holds {} weights of the layer '{}', but the model's (named '{}') has {}", count,
                              without_layers(group), layer.name, count_own_weights(layer)));
    }
    for (std::size_t i = 0; i < count; ++i) {
      NamedTensor& weight = model.weights[first + i];
      weight.values = reader.read_floats(fmt::format("{}/{}", variables_of(group), i), weight.shape);
    }
  });
  for (const auto& [group, count] : found) {
    if (count != 0) {
      reader.fail(fmt::format("holds {} weights of a layer '{}', which the model lacks", count, without_layers(group)));
    }
  }
  if (!model.compile_state) return model;
  if (model.compile_state->refusals.optimizer.empty()) {
    read_optimizer(reader, model.architecture, *model.compile_state, version);
  } else {
    begin_anew(model.architecture, *model.compile_state);
  }
  return model;
}

ModelData load_keras_weights(const std::filesystem::path& file, ModelData model) {
  ModelData read = read_model_in_subprocess(
      file, [&] { return read_keras_weights(Hdf5Reader(file), std::move(model), KerasVersion::three); });
  if (read.compile_state && !read.compile_state->refusals.optimizer.empty()) {
    throw DataError(read.compile_state->refusals.optimizer);
  }
  return read;
}

}  // namespace lockstep
