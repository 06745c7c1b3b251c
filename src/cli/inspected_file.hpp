// What `lockstep inspect` knows of one file.
#pragma once

#include "checkpoint/saved_model.hpp"
#include "checkpoint/stored_tensors.hpp"
#include "checkpoint/training_state.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Of the values that are numbers; NaN and infinities are only counted.
struct TensorStatistics {
  double mean = 0;
  double standard_deviation = 0;
  double min = 0;
  double max = 0;
  std::uint64_t nans = 0;
  std::uint64_t infinities = 0;
};

[[nodiscard]] TensorStatistics statistics_of(const SavedTensor& tensor);

struct InspectedFile {
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  std::optional<SavedModel> model;  ///< nothing in a file of weights only
  StoredTensors stored;             ///< then these, under the names they have in the file
  std::optional<TrainingState> backup = {};
};

/// Throws as load_model() does.
[[nodiscard]] InspectedFile inspect_file(const std::filesystem::path& file);

[[nodiscard]] const std::vector<SavedTensor>& weights_of(const InspectedFile& file);

/// The optimizer's arrays; none where there is no optimizer.
[[nodiscard]] const std::vector<SavedTensor>& optimizer_state_of(const InspectedFile& file);

/// "weights hold 3 NaN and 0 infinite values" (or the optimizer's state does); empty if all are numbers.
[[nodiscard]] std::string describe_bad_values(const InspectedFile& file);

/// The models below a directory, and history.json files beside them, in the order of their names. Hidden files, among
/// them those under construction, are left out. Throws IoError.
[[nodiscard]] std::vector<std::filesystem::path> find_files(const std::filesystem::path& directory);

}  // namespace lockstep
