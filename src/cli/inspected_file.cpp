// See inspected_file.hpp.
#include "cli/inspected_file.hpp"

#include "checkpoint/keras/keras_h5.hpp"
#include "checkpoint/model_file.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace fs = std::filesystem;

namespace lockstep {
namespace {

std::string count_bad_values(const std::vector<NamedTensor>& tensors, const std::string& whose) {
  std::uint64_t nans = 0;
  std::uint64_t infinities = 0;
  for (const NamedTensor& tensor : tensors) {
    const TensorStatistics statistics = compute_statistics(tensor);
    nans += statistics.nans;
    infinities += statistics.infinities;
  }
  if (nans == 0 && infinities == 0) return {};
  return fmt::format("{} hold {} NaN and {} infinite values", whose, nans, infinities);
}

}  // namespace

TensorStatistics compute_statistics(const NamedTensor& tensor) {
  TensorStatistics result;
  double sum = 0;
  std::uint64_t count = 0;
  for (const float value : tensor.values) {
    if (std::isnan(value)) {
      ++result.nans;
    } else if (std::isinf(value)) {
      ++result.infinities;
    } else {
      result.min = count == 0 ? value : std::min<double>(result.min, value);
      result.max = count == 0 ? value : std::max<double>(result.max, value);
      sum += value;
      ++count;
    }
  }
  if (count == 0) return result;
  result.mean = sum / static_cast<double>(count);
  double squares = 0;  // of distances from the mean: subtracting large sums would cancel all digits
  for (const float value : tensor.values) {
    if (std::isfinite(value)) squares += (value - result.mean) * (value - result.mean);
  }
  result.standard_deviation = std::sqrt(squares / static_cast<double>(count));
  return result;
}

InspectedFile inspect_file(const fs::path& file) {
  const ModelFormat format = model_format_of(file);
  InspectedFile result{file, 0, {}, {}};
  const bool weights_only = format == ModelFormat::weights || (format == ModelFormat::h5 && !has_architecture(file));
  if (weights_only) {
    result.stored = load_file_tensors(file);
    if (result.stored.weights.empty())
      throw DataError(file.string() + " is HDF5, but holds neither a model nor weights");
  } else {
    result.model = load_model(file);
    if (result.model->training_state)
      result.backup = deserialize_training_state(*result.model->training_state, file.string());
  }
  std::error_code error;
  result.bytes = fs::file_size(file, error);
  if (error) throw IoError("cannot read " + file.string() + ": " + error.message());
  return result;
}

const std::vector<NamedTensor>& weights_of(const InspectedFile& file) {
  return file.model ? file.model->weights : file.stored.weights;
}

const std::vector<NamedTensor>& optimizer_state_of(const InspectedFile& file) {
  return file.model && file.model->compile_state ? file.model->compile_state->slots : file.stored.optimizer;
}

std::string describe_bad_values(const InspectedFile& file) {
  const std::string weights = count_bad_values(weights_of(file), "weights");
  return weights.empty() ? count_bad_values(optimizer_state_of(file), "optimizer slots") : weights;
}

std::vector<fs::path> find_files(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  const auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator entry(directory, options, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with('.')) {
      entry.disable_recursion_pending();
      continue;
    }
    std::error_code unreadable;
    if (!entry->is_regular_file(unreadable)) continue;
    if (name == "history.json" || is_model_file_name(entry->path())) files.push_back(entry->path());
  }
  if (error) throw IoError("cannot read the directory " + directory.string() + ": " + error.message());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace lockstep
