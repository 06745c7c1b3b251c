// TensorFlow's SavedModel, which only Keras itself writes.
#pragma once

#include <filesystem>

namespace lockstep {

/// Lets Keras write the model to a directory, which does not exist yet, with the python3 on PATH. Throws UsageError if
/// that lacks Keras or TensorFlow, DataError if Keras cannot export the model, IoError if a file cannot be read or
/// written, InternalError if Python is killed. Keras' message is on standard error.
void write_saved_model(const std::filesystem::path& model, const std::filesystem::path& output);

}  // namespace lockstep
