// load_keras_h5() without its safety net.
#pragma once

#include "checkpoint/saved_model.hpp"

#include <filesystem>

namespace lockstep {

/// As load_keras_h5(), but in this process: a damaged file can crash the HDF5 library, and the process with it.
[[nodiscard]] SavedModel read_keras_h5(const std::filesystem::path& file);

}  // namespace lockstep
