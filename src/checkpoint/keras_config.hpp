// Keras' JSON: how a model's layers and its compilation are described in .h5 files and by model.to_json().
#pragma once

#include "checkpoint/saved_model.hpp"

#include <optional>
#include <string>

namespace lockstep {

/// {"class_name": "Sequential", "config": {...}}, in the few keys that every Keras from tf_keras to 3.15 understands.
[[nodiscard]] std::string sequential_to_json(const Sequential& architecture);

/// What sequential_to_json, Keras 2 or Keras 3 wrote: a Sequential model, or a Functional one that is a chain. Throws
/// DataError, beginning with `source`, for text that is no such description and for every class and option that
/// Lockstep lacks, by its name.
[[nodiscard]] Sequential sequential_from_json(const std::string& text, const std::string& source = "model JSON");

/// Keras' training_config: optimizer, loss and metrics, without iteration and slots.
[[nodiscard]] std::string training_to_json(const SavedTraining& training);

/// The same refusals; iteration is 0 and slots are empty.
[[nodiscard]] SavedTraining training_from_json(const std::string& text, const std::string& source = "training JSON");

/// The config.json of a `.keras` file: architecture and, if compiled, optimizer, loss and metrics, in few keys.
[[nodiscard]] std::string archive_to_json(const SavedModel& model);

/// What a `.keras` file's config.json says of the compilation, nothing if the model was not compiled. The architecture
/// is read by sequential_from_json. The same refusals; iteration is 0 and slots are empty.
[[nodiscard]] std::optional<SavedTraining> archive_training_from_json(const std::string& text,
                                                                      const std::string& source = "config.json");

}  // namespace lockstep
