// Keras 3's own form of a model, `model.save("model.keras")`: every version of Keras 3 reads what save_keras_archive
// writes, and load_keras_archive reads what any of them wrote.
//
//   a zip archive of  metadata.json       version and date
//                     config.json         architecture and compilation
//                     model.weights.h5    see keras_weights.hpp
#pragma once

#include "checkpoint/saved_model.hpp"

#include <filesystem>

namespace lockstep {

/// Writes the file whole or not at all (see AtomicFile). Equal models give equal bytes.
void save_keras_archive(const std::filesystem::path& file, const SavedModel& model);

/// Throws IoError where the file cannot be read, DataError where it is damaged, disagrees with itself, or holds what
/// Lockstep lacks (named).
[[nodiscard]] SavedModel load_keras_archive(const std::filesystem::path& file);

}  // namespace lockstep
