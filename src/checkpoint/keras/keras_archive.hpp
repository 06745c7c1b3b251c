// Keras 3's own model format, `model.save("model.keras")`. Every version of Keras 3 reads what save_keras_archive
// writes, and load_keras_archive reads the files of every version.
//
//   a zip archive of  metadata.json       version and date
//                     config.json         architecture and compilation
//                     model.weights.h5    see keras_weights.hpp
#pragma once

#include "checkpoint/model_data.hpp"
#include "ownership/write_guard.hpp"

#include <filesystem>

namespace lockstep {

/// Writes the file atomically. Equal models give equal bytes.
void save_keras_archive(const std::filesystem::path& file, const ModelData& model,
                        const WriteGuard& guard = require_not_owned_by_another);

/// Throws IoError if the file cannot be read; DataError if it is damaged, inconsistent, or uses something that Lockstep
/// does not support (named in the message).
[[nodiscard]] ModelData load_keras_archive(const std::filesystem::path& file);

}  // namespace lockstep
