// Finds a dataset's files, reads them, and checks that inputs and targets match.
#include "data/cifar.hpp"
#include "data/idx.hpp"
#include "data/npy.hpp"
#include "data/npz.hpp"
#include "data/sequential_file.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/load_dataset.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

namespace fs = std::filesystem;

constexpr const char* remedy =
    "name FILE.npz with the arrays x_train, y_train, x_test and y_test, or a directory of the files of MNIST or CIFAR, "
    "which scripts/fetch_data.sh mnist|cifar10 DIRECTORY fetches";

bool is_there(const fs::path& path) {
  std::error_code ignored;  // a path that cannot be examined counts as missing
  return fs::exists(path, ignored);
}

// --- IDX ---------------------------------------------------------------------------------------------------------

/// The name of one of a dataset's four files: STEM-KIND or STEM.KIND.
struct IdxName {
  const char* stem;
  const char* kind;
};
constexpr std::array<IdxName, 4> idx_names{{{"train-images", "idx3-ubyte"},
                                            {"train-labels", "idx1-ubyte"},
                                            {"t10k-images", "idx3-ubyte"},
                                            {"t10k-labels", "idx1-ubyte"}}};

std::optional<fs::path> find_idx(const fs::path& directory, const IdxName& name) {
  for (const char* ending : {"", ".gz"}) {  // plain first: it loads faster
    for (const char* separator : {"-", "."}) {
      fs::path path = directory / (std::string(name.stem) + separator + name.kind + ending);
      if (is_there(path)) return path;
    }
  }
  return std::nullopt;
}

Dataset read_idx_pair(const fs::path& images_path, const fs::path& labels_path) {
  IdxArray images = read_idx(images_path);
  const IdxArray labels = read_idx(labels_path);
  if (images.shape.rank() != 3) {
    throw DataError(
        fmt::format("{} has shape {}, but images have three dimensions (number, rows, columns); pass the "
                    "image file",
                    images_path.string(), images.shape.to_string()));
  }
  if (labels.shape.rank() != 1) {
    throw DataError(fmt::format("{} has shape {}, but labels have one dimension, their number; pass the label file",
                                labels_path.string(), labels.shape.to_string()));
  }
  if (images.shape[0] != labels.shape[0] || images.values.empty()) {
    throw DataError(
        fmt::format("{} holds {} images and {} {} labels, but every image needs its label, and there must be "
                    "at least one; fetch both files again",
                    images_path.string(), images.shape.to_string(), labels_path.filename().string(), labels.shape[0]));
  }
  return {Shape{images.shape[1], images.shape[2]}, std::move(images.values), Shape{},
          std::vector<std::int32_t>(labels.values.begin(), labels.values.end()),
          fmt::format("{} (labels: {})", images_path.string(), labels_path.filename().string())};
}

// --- npz ---------------------------------------------------------------------------------------------------------

std::vector<std::int32_t> to_classes(const NpyArray& array, const std::string& name) {
  const std::vector<std::int64_t> wide = to_integers(array);
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const bool has_wrapped = array.type == NpyType::u8 && wide[i] < 0;
    if (has_wrapped || wide[i] < std::numeric_limits<std::int32_t>::min() ||
        wide[i] > std::numeric_limits<std::int32_t>::max()) {
      throw DataError(fmt::format(
          "label {} of {} is {}, which does not fit into 32 bits; correct it, or save the "
          "labels as floats",
          i, name, has_wrapped ? fmt::to_string(static_cast<std::uint64_t>(wide[i])) : fmt::to_string(wide[i])));
    }
  }
  return {wide.begin(), wide.end()};
}

InputValues to_inputs(NpyArray array) {
  if (array.type == NpyType::u1) return std::move(array.bytes);
  return to_floats(array);
}

NpyArray read_npy(const fs::path& path) {
  const std::vector<std::uint8_t> file = read_whole_file(path);
  const NpyHeader header = parse_npy_header(file, path.string());
  if (file.size() - header.bytes != header.payload) {
    throw DataError(fmt::format(
        "{} declares an array {} of '{}', {} bytes from byte {} on, but has {} bytes in all; "
        "write it again with numpy.save",
        path.string(), header.shape.to_string(), descr_of(header.type), header.payload, header.bytes, file.size()));
  }
  return to_array(header, {file.begin() + static_cast<std::ptrdiff_t>(header.bytes), file.end()});
}

/// `shape` without its first dimension.
Shape without_first(const Shape& shape) {
  const auto extents = shape.extents();
  return Shape(std::vector<std::int64_t>(extents.begin() + 1, extents.end()));
}

Dataset read_npz_pair(const NpzArchive& archive, const std::string& file, const std::string& split) {
  const std::string inputs_name = file + ":x_" + split;
  const std::string targets_name = file + ":y_" + split;
  NpyArray inputs = archive.read("x_" + split);
  const NpyArray targets = archive.read("y_" + split);
  if (inputs.shape.rank() < 2 || targets.shape.rank() < 1 || inputs.shape[0] != targets.shape[0] ||
      inputs.bytes.empty() || targets.bytes.empty()) {
    throw DataError(
        fmt::format("{} has shape {} and y_{} has shape {}, but there must be one label for every example, "
                    "and at least one example; save them again",
                    inputs_name, inputs.shape.to_string(), split, targets.shape.to_string()));
  }
  Dataset data;
  InputArray& input = data.inputs.emplace_back();
  input.shape = without_first(inputs.shape);
  input.values = to_inputs(std::move(inputs));
  data.source = fmt::format("{} (labels: y_{})", inputs_name, split);
  TargetArray& target = data.targets.emplace_back();
  const Shape shape = without_first(targets.shape);
  // Keras' own datasets have labels of shape (n,) or (n, 1).
  if (is_integer(targets.type) && shape.elements() == 1 && shape.rank() <= 1) {
    target.values = to_classes(targets, targets_name);
  } else {
    target.shape = shape;
    target.values = to_floats(targets);
  }
  if (const std::string name = split == "train" ? "sample_weight" : "sample_weight_" + split; archive.has(name)) {
    const NpyArray weights = archive.read(name);
    if (weights.shape != Shape{targets.shape[0]}) {
      throw DataError(
          fmt::format("{}:{} has shape {}, but there must be one weight for every example of x_{}; save "
                      "them again",
                      file, name, weights.shape.to_string(), split));
    }
    data.sample_weights = to_floats(weights);
  }
  return data;
}

/// Refuses an array that looks like a part of the data but has a name that nothing reads. Others, such as the classes'
/// names, may be there.
void require_known_arrays(const NpzArchive& archive, const std::string& file) {
  constexpr std::array known{
      "x_train",          "y_train", "x_test", "y_test", "x_val", "y_val", "sample_weight", "sample_weight_test",
      "sample_weight_val"};
  for (const std::string& key : archive.keys()) {
    const bool is_part = key == "x" || key == "y" || key.starts_with("x_") || key.starts_with("y_") ||
                         key.find("weight") != std::string::npos;
    if (!is_part || std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw DataError(fmt::format("{}:{} would not be used; rename it to one of {}, or leave it out", file, key,
                                fmt::join(known, ", ")));
  }
}

/// Calls read(archive), which may keep nothing of the archive.
template <typename Read>
auto with_npz(const fs::path& path, const Read& read) {
  const std::vector<std::uint8_t> bytes = read_whole_file(path);
  const NpzArchive archive(std::as_bytes(std::span(bytes)), path.string());
  require_known_arrays(archive, path.string());
  return read(archive);
}

// --- all formats ---------------------------------------------------------------------------------------------------

enum IdxFile { train_images, train_labels, test_images, test_labels };

/// The files of these indices in `idx_names`. Throws IoError unless all are there.
std::vector<fs::path> find_all_idx(const fs::path& directory, std::initializer_list<IdxFile> files) {
  std::vector<fs::path> found;
  std::vector<std::string> missing;
  for (const IdxFile file : files) {
    const IdxName& name = idx_names.at(file);
    if (auto path = find_idx(directory, name)) {
      found.push_back(std::move(*path));
    } else {
      missing.push_back(std::string(name.stem) + "-" + name.kind);
    }
  }
  if (missing.empty()) return found;
  std::error_code unreadable;
  for (fs::directory_iterator entry(directory, unreadable), end; !unreadable && entry != end;
       entry.increment(unreadable)) {
    if (entry->path().extension() == ".npz") {
      throw IoError(fmt::format("the data directory {} has no {}; name the file {}", directory.string(),
                                fmt::join(missing, ", "), entry->path().string()));
    }
  }
  throw IoError(fmt::format("the data directory {} has no {} (plain or .gz); {}", directory.string(),
                            fmt::join(missing, ", "), remedy));
}

/// Keras' own names for the archives that it caches.
constexpr std::array archive_names{"mnist.npz", "cifar10.npz", "cifar100.npz"};

/// The archive at `path`: a .npz file, or a directory's mnist.npz or cifar10.npz; none for a directory of other files.
/// Throws UsageError for a path that does not exist and for a directory with several, IoError for any other path.
std::optional<fs::path> find_archive(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    const bool has_idx =
        std::ranges::any_of(idx_names, [&](const IdxName& name) { return find_idx(path, name).has_value(); });
    if (has_idx) return std::nullopt;
    std::vector<std::string> archives;
    std::ranges::copy_if(archive_names, std::back_inserter(archives),
                         [&](const char* name) { return is_there(path / name); });
    if (archives.empty()) return std::nullopt;
    if (archives.size() > 1) {
      throw UsageError(
          fmt::format("the data directory {} has {}; name one of them", path.string(), fmt::join(archives, " and ")));
    }
    return path / archives.front();
  }
  if (path.extension() == ".npz") return path;
  // A wrong setting, which no restart mends.
  std::error_code error;
  if (!fs::exists(path, error) && !error)
    throw UsageError(fmt::format("the data {} does not exist; {}", path.string(), remedy));
  throw IoError(fmt::format("the data {} is neither a directory nor a .npz file; {}", path.string(), remedy));
}

/// Throws DataError unless training data and those called `name` have inputs and targets of the same kinds and shapes.
void require_same_kind(const Dataset& train, const Dataset& other, const std::string& name, const fs::path& path) {
  const InputArray& inputs = train.input();
  const InputArray& other_inputs = other.input();
  if (inputs.shape != other_inputs.shape || inputs.values.index() != other_inputs.values.index()) {
    const auto kind = [](const InputArray& array) { return array.values.index() == 0 ? "bytes" : "floats"; };
    throw DataError(
        fmt::format("the training examples of {} are {} of shape {} and the {} examples {} of shape {}; "
                    "both must match, so save them again",
                    path.string(), kind(inputs), inputs.shape.to_string(), name, kind(other_inputs),
                    other_inputs.shape.to_string()));
  }
  const TargetArray& targets = train.target();
  const TargetArray& other_targets = other.target();
  if (targets.shape != other_targets.shape || targets.values.index() != other_targets.values.index()) {
    const auto kind = [](const TargetArray& array) { return array.values.index() == 0 ? "whole numbers" : "floats"; };
    throw DataError(
        fmt::format("the training targets of {} are {} of shape {} and the {} targets {} of shape {}; both "
                    "must match, so save them again",
                    path.string(), kind(targets), targets.shape.to_string(), name, kind(other_targets),
                    other_targets.shape.to_string()));
  }
}

}  // namespace

TrainTestSplit load_dataset(const fs::path& path) {
  TrainTestSplit data;
  if (const auto archive = find_archive(path)) {
    data = with_npz(*archive, [&](const NpzArchive& npz) {
      const std::string file = archive->string();
      TrainTestSplit split{read_npz_pair(npz, file, "train"), read_npz_pair(npz, file, "test")};
      if (npz.has("x_val") || npz.has("y_val")) split.validation = read_npz_pair(npz, file, "val");
      return split;
    });
  } else if (const auto cifar = find_cifar(path)) {
    data = {read_cifar(cifar->train, cifar->labels), read_cifar(cifar->test, cifar->labels)};
  } else {
    const auto files = find_all_idx(path, {train_images, train_labels, test_images, test_labels});
    data = {read_idx_pair(files[0], files[1]), read_idx_pair(files[2], files[3])};
  }
  require_same_kind(data.train, data.test, "test", path);
  if (data.validation) require_same_kind(data.train, *data.validation, "validation", path);
  return data;
}

std::vector<fs::path> dataset_files(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return {path};
  std::vector<fs::path> files;
  for (const char* name : archive_names) {
    if (is_there(path / name)) files.push_back(path / name);
  }
  for (const IdxName& name : idx_names) {
    if (auto file = find_idx(path, name)) files.push_back(std::move(*file));
  }
  try {
    if (const auto cifar = find_cifar(path)) {
      files.insert(files.end(), cifar->train.begin(), cifar->train.end());
      files.insert(files.end(), cifar->test.begin(), cifar->test.end());
    }
  } catch (const std::exception&) {
    // load_dataset() reports it
  }
  return files;
}

Dataset load_test_data(const fs::path& path) {
  if (const auto archive = find_archive(path)) {
    return with_npz(*archive, [&](const NpzArchive& npz) { return read_npz_pair(npz, archive->string(), "test"); });
  }
  if (const auto cifar = find_cifar(path)) return read_cifar(cifar->test, cifar->labels);
  const auto files = find_all_idx(path, {test_images, test_labels});
  return read_idx_pair(files[0], files[1]);
}

Dataset load_inputs(const fs::path& path) {
  Dataset data;
  const auto take = [&data](NpyArray array, const std::string& name) {
    if (array.shape.rank() < 2 || array.bytes.empty()) {
      throw DataError(
          fmt::format("{} has shape {}, but needs a first dimension for at least one example, and those of "
                      "an example",
                      name, array.shape.to_string()));
    }
    Shape shape = without_first(array.shape);
    data.inputs.push_back({std::move(shape), to_inputs(std::move(array))});
    data.source = name;
  };
  if (path.extension() == ".npy") {
    take(read_npy(path), path.string());
  } else if (const auto archive = find_archive(path)) {
    with_npz(*archive, [&](const NpzArchive& npz) {
      take(npz.read("x_test"), archive->string() + ":x_test");
      return true;
    });
  } else if (const auto cifar = find_cifar(path)) {
    data = read_cifar(cifar->test, cifar->labels);
    data.targets.clear();
  } else {
    const auto files = find_all_idx(path, {test_images});
    IdxArray images = read_idx(files[0]);
    data.inputs.push_back({without_first(images.shape), std::move(images.values)});
    data.source = files[0].string();
  }
  return data;
}

}  // namespace lockstep
