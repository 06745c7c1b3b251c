// The arrays of an HDF5 file, whatever wrote it and whether or not a model is described: for a look inside.
#pragma once

#include "checkpoint/saved_model.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace lockstep {

struct StoredTensors {
  std::vector<SavedTensor> weights;       ///< and whatever else is outside of an optimizer's group
  std::vector<SavedTensor> optimizer;     ///< learning rate and slots
  std::optional<std::int64_t> iteration;  ///< steps made, in files of Keras 3
};

/// All data sets of floating-point numbers, named by their paths, in the order of names (numbers by their value). A
/// damaged file costs no more than a DataError; an unreadable one is an IoError.
[[nodiscard]] StoredTensors load_stored_tensors(const std::filesystem::path& file);

}  // namespace lockstep
