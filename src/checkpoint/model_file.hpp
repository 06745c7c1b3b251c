// Saves and loads models. The file name's extension selects the format: .keras (Keras 3), .h5 or .hdf5 (a whole model
// in HDF5, for Keras 2 and 3), .weights.h5 (weights and optimizer state without the architecture).
#pragma once

#include "checkpoint/model_data.hpp"
#include "ownership/write_guard.hpp"

#include <filesystem>

namespace lockstep {

enum class ModelFormat { keras, h5, weights };

/// Throws UsageError for another extension.
[[nodiscard]] ModelFormat model_format_of(const std::filesystem::path& file);

/// True if the name has one of these extensions.
[[nodiscard]] bool is_model_file_name(const std::filesystem::path& file);

/// Writes the file atomically. Throws IoError if it cannot be written.
void save_model(const std::filesystem::path& file, const ModelData& model,
                const WriteGuard& guard = require_not_owned_by_another);

/// Throws IoError if the file cannot be read; DataError if it is damaged, holds no architecture (use
/// load_keras_weights) or uses something that Lockstep does not support.
[[nodiscard]] ModelData load_model(const std::filesystem::path& file,
                                   UnsupportedCompilation unsupported = UnsupportedCompilation::refuse);

}  // namespace lockstep
