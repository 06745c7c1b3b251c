// Keras' whole-model HDF5 files. `keras.models.load_model` (tf_keras 2 to Keras 3.15) reads what save_keras_h5 writes,
// and load_keras_h5 reads what `model.save("model.h5")` writes. Two limits are Keras' own: load_model of Keras 3.15
// restores the optimizer's iteration and learning rate but not its slots, and tf_keras needs custom_objects or
// compile=False for some optimizers (docs/from-keras.md).
//
//   /                    attributes keras_version, backend, model_config and, if compiled, training_config (JSON)
//   /model_weights       attribute layer_names; a group per layer with attribute weight_names and a dataset per weight
//   /optimizer_weights   attribute weight_names; iteration, learning_rate, then the optimizer's slots
//   /lockstep            in backups: attribute state (JSON, see training_state.hpp), datasets 0, 1, ...
#pragma once

#include "checkpoint/model_data.hpp"
#include "ownership/write_guard.hpp"

#include <filesystem>

namespace lockstep {

/// Writes the file atomically. Equal models give equal bytes. Weights and slots must have the order and shapes of
/// weights_for() and slots_for(); their names are ignored.
void save_keras_h5(const std::filesystem::path& file, const ModelData& model,
                   const WriteGuard& guard = require_not_owned_by_another);

/// Weights and slots are identified by their order in the file, as in Keras. A model that was compiled but never
/// trained gets slots of zeros. Throws IoError if the file cannot be read; DataError if it is damaged, inconsistent, or
/// uses something that Lockstep does not support (named in the message).
[[nodiscard]] ModelData load_keras_h5(const std::filesystem::path& file);

/// True if an HDF5 file holds a whole model, false if it holds weights only. Throws like load_keras_h5().
[[nodiscard]] bool has_architecture(const std::filesystem::path& file);

}  // namespace lockstep
