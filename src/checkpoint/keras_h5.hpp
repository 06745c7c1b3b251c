// Keras' whole-model HDF5 files: `keras.models.load_model` reads what save_keras_h5 writes (tf_keras 2 to Keras 3.15),
// and load_keras_h5 reads what Keras' own `model.save("model.h5")` writes. Of the optimizer, Keras 3.15's load_model
// restores iteration and learning rate but not the slots (nor does it with its own files); tf_keras does not know AdamW
// by Keras 3's name and needs compile=False there.
//
//   /                    attributes keras_version, backend, model_config and, if compiled, training_config (JSON)
//   /model_weights       attribute layer_names; a group a layer with attribute weight_names and a data set a weight
//   /optimizer_weights   attribute weight_names; iteration, learning_rate, then the optimizer's slots
//   /lockstep            in backups: attribute state (JSON, see training_state.hpp), data sets 0, 1, ...
#pragma once

#include "checkpoint/saved_model.hpp"

#include <filesystem>

namespace lockstep {

/// Writes the file whole or not at all (see AtomicFile). Equal models give equal bytes. Weights and slots are taken in
/// order; their shapes must be those of weights_for() and slots_for(), their names do not matter.
void save_keras_h5(const std::filesystem::path& file, const SavedModel& model);

/// Weights and slots are found by their order in the file, as Keras does. A model that was compiled but never trained
/// has slots of zeros. Throws IoError where the file cannot be read, DataError where it is damaged, disagrees with
/// itself, or holds what Lockstep lacks (named).
[[nodiscard]] SavedModel load_keras_h5(const std::filesystem::path& file);

/// Whether an HDF5 file holds a whole model, not weights only. Throws as load_keras_h5() does.
[[nodiscard]] bool has_architecture(const std::filesystem::path& file);

}  // namespace lockstep
