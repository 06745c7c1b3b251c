// Reads the arrays of any HDF5 file, whether or not it describes a model; for `lockstep inspect`.
#pragma once

#include "checkpoint/model_data.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace lockstep {

struct FileTensors {
  std::vector<NamedTensor> weights;       ///< all arrays outside the optimizer's group
  std::vector<NamedTensor> optimizer;     ///< learning rate and slots
  std::optional<std::int64_t> iteration;  ///< the optimizer's step count, in files of Keras 3
};

/// Reads all floating-point datasets. Their names are their paths, sorted with numbers by value. Reads in a subprocess:
/// throws DataError for a damaged file, IoError for an unreadable one.
[[nodiscard]] FileTensors load_file_tensors(const std::filesystem::path& file);

}  // namespace lockstep
