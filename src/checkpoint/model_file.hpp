// Models in files, of the form that the name's end tells: .keras (Keras 3's own), .h5 or .hdf5 (whole-model HDF5, for
// every Keras), .weights.h5 (weights and optimizer state without the architecture).
#pragma once

#include "checkpoint/saved_model.hpp"

#include <filesystem>

namespace lockstep {

enum class ModelFormat { keras, h5, weights };

/// Throws UsageError where the name ends in none of these.
[[nodiscard]] ModelFormat model_format_of(const std::filesystem::path& file);

/// Whether it ends in one.
[[nodiscard]] bool is_model_name(const std::filesystem::path& file);

/// Writes the file whole or not at all.
void save_model(const std::filesystem::path& file, const SavedModel& model);

/// Throws IoError where the file cannot be read, DataError where it is damaged, or holds no architecture (use
/// load_keras_weights then), or what Lockstep lacks.
[[nodiscard]] SavedModel load_model(const std::filesystem::path& file);

}  // namespace lockstep
