// See inspected_file.hpp.
#include "cli/inspected_file.hpp"

#include "checkpoint/keras/keras_h5.hpp"
#include "checkpoint/model_file.hpp"
#include "core/lower_case.hpp"

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

bool is_below(const fs::path& path, const fs::path& directory) {
  return std::mismatch(directory.begin(), directory.end(), path.begin(), path.end()).first == directory.end();
}

/// "M.KERAS", which no program reads as a model.
bool has_name_in_other_case(const fs::path& file) { return is_model_file_name(lower_case(file.filename().string())); }

/// `top`: the canonical path of the directory where the search began.
void search(const fs::path& directory, const fs::path& top, FoundFiles& found, std::error_code& error) {
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    std::error_code problem;
    const bool is_directory = entry->is_directory(problem);
    if (is_directory && entry->is_symlink(problem)) {
      const fs::path target = fs::canonical(path, problem);
      if (!is_below(target, top)) found.skipped.push_back({path, "it is a link to a directory elsewhere"});
    } else if (is_directory) {
      std::error_code unreadable;
      search(path, top, found, unreadable);
      if (unreadable && path.filename() != "lost+found") found.skipped.push_back({path, unreadable.message()});
    } else if (path.filename() == "history.json" || is_model_file_name(path)) {
      if (entry->is_regular_file(problem)) {
        found.files.push_back(path);
      } else {
        found.skipped.push_back({path, "it is no regular file"});
      }
    } else if (has_name_in_other_case(path)) {
      found.skipped.push_back({path, "its ending is not in lower case"});
    }
  }
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
  if (std::error_code unknown; !fs::exists(file, unknown) && !unknown) {
    throw UsageError(fmt::format("there is no file {}; name a model or weights file, or a directory", file.string()));
  }
  if (file.extension() == ".json") {
    throw UsageError(
        fmt::format("{} holds no weights to inspect; lockstep plan --model FILE.json says whether the model "
                    "can be trained",
                    file.string()));
  }
  const ModelFormat format = model_format_of(file);
  InspectedFile result{file, 0, {}, {}};
  const bool weights_only = format == ModelFormat::weights || (format == ModelFormat::h5 && !has_architecture(file));
  if (weights_only) {
    result.stored = load_file_tensors(file);
    if (result.stored.weights.empty())
      throw DataError(file.string() + " is HDF5, but holds neither a model nor weights");
  } else {
    result.model = load_model(file, UnsupportedCompilation::note);
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

std::vector<std::string> names_of_metrics(const CompileOptions& training, bool weighted) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& prefix, const auto& of) {
    for (const Metric& metric : weighted ? of.weighted_metrics : of.metrics)
      names.push_back(prefix + std::string(keras_name(metric)));
  };
  add("", training);
  for (const OutputOptions& output : training.outputs) add(output.output + "_", output);
  return names;
}

std::string describe_bad_values(const InspectedFile& file) {
  const std::string weights = count_bad_values(weights_of(file), "weights");
  return weights.empty() ? count_bad_values(optimizer_state_of(file), "optimizer slots") : weights;
}

FoundFiles find_files(const fs::path& directory) {
  FoundFiles found;
  std::error_code error;
  const fs::path top = fs::canonical(directory, error);
  if (!error) search(directory, top, found, error);
  if (error) throw IoError("cannot read the directory " + directory.string() + ": " + error.message());
  std::sort(found.files.begin(), found.files.end());
  return found;
}

}  // namespace lockstep
