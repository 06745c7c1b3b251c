// A model file as `lockstep inspect` reads it.
#pragma once

#include "checkpoint/backup/training_state.hpp"
#include "checkpoint/file_tensors.hpp"
#include "checkpoint/model_data.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Mean, deviation and extremes are those of the finite values; 0 if no value is finite.
struct TensorStatistics {
  double mean = 0;
  double standard_deviation = 0;
  double min = 0;
  double max = 0;
  std::uint64_t nans = 0;
  std::uint64_t infinities = 0;
};

[[nodiscard]] TensorStatistics compute_statistics(const NamedTensor& tensor);

struct InspectedFile {
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  std::optional<ModelData> model;  ///< nullopt for a file of weights only
  FileTensors stored;              ///< the tensors of such a file, under their names in the file
  std::optional<TrainingState> backup = {};
};

/// Throws as load_model() does.
[[nodiscard]] InspectedFile inspect_file(const std::filesystem::path& file);

[[nodiscard]] const std::vector<NamedTensor>& weights_of(const InspectedFile& file);

/// The optimizer's arrays; empty without an optimizer.
[[nodiscard]] const std::vector<NamedTensor>& optimizer_state_of(const InspectedFile& file);

/// The names of metrics or of weighted metrics; of several outputs "OUTPUT_NAME".
[[nodiscard]] std::vector<std::string> names_of_metrics(const CompileOptions& training, bool weighted);

/// "weights hold 3 NaN and 0 infinite values", or the same of "optimizer slots"; empty if all values are finite.
[[nodiscard]] std::string describe_bad_values(const InspectedFile& file);

/// What a directory holds.
struct FoundFiles {
  struct Skipped {
    std::filesystem::path path;
    std::string why;  ///< "it is a link to a directory"
  };
  std::vector<std::filesystem::path> files;  ///< models and history.json, sorted by path
  std::vector<Skipped> skipped;              ///< what may be or hold a model, but cannot be read as one
};

/// Searches a directory and those below it, hidden ones included. Does not follow links to directories elsewhere.
/// Throws IoError if `directory` itself cannot be read.
[[nodiscard]] FoundFiles find_files(const std::filesystem::path& directory);

}  // namespace lockstep
