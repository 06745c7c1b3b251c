// Finds a dataset's files, reads them, and checks that inputs and targets match.
#include "core/join_words.hpp"
#include "data/cifar.hpp"
#include "data/idx.hpp"
#include "data/npy.hpp"
#include "data/npz_dataset.hpp"
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
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

namespace fs = std::filesystem;

// What a path must name, by what is read of it.
constexpr const char* training_files = "FILE.npz with the arrays x_train, y_train, x_test and y_test";
constexpr const char* test_files = "FILE.npz with the arrays x_test and y_test";
constexpr const char* input_files = "FILE.npy with inputs, FILE.npz with the array x_test";

std::string remedy_of(const char* files) {
  return fmt::format(
      "name {}, or a directory of the files of MNIST or CIFAR, which scripts/fetch_data.sh mnist|cifar10 "
      "DIRECTORY fetches; docs/from-keras.md makes a .npz file of pictures or a table",
      files);
}

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
  Dataset data(Shape{images.shape[1], images.shape[2]}, std::move(images.values), Shape{},
               std::vector<std::int32_t>(labels.values.begin(), labels.values.end()), images_path.string());
  data.target().source = labels_path.string();
  return data;
}

// --- npy ---------------------------------------------------------------------------------------------------------

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

// --- all formats ---------------------------------------------------------------------------------------------------

enum IdxFile { train_images, train_labels, test_images, test_labels };

/// The files of these indices in `idx_names`. Throws UsageError if none is there, IoError if some are missing.
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
  const auto refuse = [&](const std::string& sentence) {
    if (found.empty()) throw UsageError(sentence);  // another directory was meant, or nobody has filled this one
    throw IoError(sentence);
  };
  std::vector<std::string> archives;
  std::error_code unreadable;
  for (fs::directory_iterator entry(directory, unreadable), end; !unreadable && entry != end;
       entry.increment(unreadable)) {
    if (entry->path().extension() == ".npz") archives.push_back(entry->path().filename().string());
  }
  if (!archives.empty()) {
    std::ranges::sort(archives);
    const std::string remedy = archives.size() == 1
                                   ? "name the file " + (directory / archives.front()).string()
                                   : fmt::format("name one of its {} .npz files, such as {}", archives.size(),
                                                 (directory / archives.front()).string());
    refuse(fmt::format("the data directory {} has no {}; {}", directory.string(), fmt::join(missing, ", "), remedy));
  }
  refuse(fmt::format("the data directory {} has no {} (plain or .gz); {}", directory.string(), fmt::join(missing, ", "),
                     remedy_of(training_files)));
  return found;
}

/// Keras' own names for the archives that it caches.
constexpr std::array archive_names{"mnist.npz", "cifar10.npz", "cifar100.npz"};

/// The archive at `path`: a .npz file, or a directory's mnist.npz or cifar10.npz; none for a directory of other files.
/// Throws UsageError for a path that does not exist and for a directory with several, IoError for any other path.
std::optional<fs::path> find_archive(const fs::path& path, const char* files) {
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
    throw UsageError(fmt::format("the data {} does not exist; {}", path.string(), remedy_of(files)));
  throw IoError(fmt::format("the data {} is neither a directory nor a .npz file; {}", path.string(), remedy_of(files)));
}

/// Whole numbers that are floats in another split become floats: what the loss takes decides about both.
void unite_kinds(Dataset& data, Dataset& other) {
  for (std::size_t i = 0; i < std::min(data.targets.size(), other.targets.size()); ++i) {
    TargetArray& ours = data.targets[i];
    TargetArray& theirs = other.targets[i];
    if (ours.values.index() == theirs.values.index()) continue;
    for (TargetArray* target : {&ours, &theirs}) {
      if (const auto* classes = std::get_if<SharedArray<std::int32_t>>(&target->values))
        target->values = SharedArray<float>(std::vector<float>(classes->begin(), classes->end()));
    }
  }
}

/// Throws DataError unless training data and other data have inputs and targets of the same kinds and shapes.
void require_same_kind(const Dataset& train, const Dataset& other) {
  const auto require = [&](const auto& ours, const auto& theirs, const auto& kind) {
    if (ours.shape == theirs.shape && ours.values.index() == theirs.values.index()) return;
    throw DataError(fmt::format(
        "the examples of {} are {} of shape {} and those of {} are {} of shape {}; save both with one dtype and "
        "one shape",
        train.label_of(ours), kind(ours), ours.shape.to_string(), other.label_of(theirs), kind(theirs),
        theirs.shape.to_string()));
  };
  for (std::size_t i = 0; i < train.inputs.size(); ++i) {
    require(train.inputs[i], other.inputs[i],
            [](const InputArray& array) { return holds_bytes(array) ? "bytes" : "floats"; });
  }
  for (std::size_t i = 0; i < train.targets.size(); ++i) {
    require(train.targets[i], other.targets[i],
            [](const TargetArray& array) { return array.values.index() == 0 ? "whole numbers" : "floats"; });
  }
}

/// Refuses files of pictures for a model that reads several arrays.
void require_one_array(const ArrayNames& names, const fs::path& path, const std::string& split) {
  if (names.inputs.size() < 2 && names.targets.size() < 2) return;
  std::vector<std::string> arrays;
  for (const std::string& name : names.inputs.size() < 2 ? std::vector<std::string>{} : names.inputs)
    arrays.push_back("x_" + split + "_" + name);
  for (const std::string& name : names.targets.size() < 2 ? std::vector<std::string>{} : names.targets)
    arrays.push_back("y_" + split + "_" + name);
  throw UsageError(
      fmt::format("the model has several inputs or outputs, but {} holds one array; name FILE.npz with the "
                  "arrays {}",
                  path.string(), join_words(arrays)));
}

}  // namespace

TrainTestSplit load_dataset(const fs::path& path, const ArrayNames& names, TestSet test_set) {
  TrainTestSplit data;
  if (const auto archive = find_archive(path, training_files)) {
    data = read_npz(*archive, names, test_set);
  } else if (const auto cifar = find_cifar(path)) {
    require_one_array(names, path, "train");
    data = {read_cifar_train(*cifar), read_cifar_test(*cifar)};
  } else {
    const auto files = find_all_idx(path, {train_images, train_labels, test_images, test_labels});
    require_one_array(names, path, "train");
    data = {read_idx_pair(files[0], files[1]), read_idx_pair(files[2], files[3])};
  }
  for (int round = 0; round < 2; ++round) {  // the second for a test set whose kind a validation set changes
    if (data.test.size() > 0) unite_kinds(data.train, data.test);
    if (data.validation) unite_kinds(data.train, *data.validation);
  }
  if (data.test.size() > 0) require_same_kind(data.train, data.test);
  if (data.validation) require_same_kind(data.train, *data.validation);
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

Dataset load_test_data(const fs::path& path, const ArrayNames& names) {
  if (const auto archive = find_archive(path, test_files)) return read_npz_test_data(*archive, names);
  require_one_array(names, path, "test");
  if (const auto cifar = find_cifar(path)) return read_cifar_test(*cifar);
  const auto files = find_all_idx(path, {test_images, test_labels});
  return read_idx_pair(files[0], files[1]);
}

Dataset load_inputs(const fs::path& path, const ArrayNames& names) {
  const ArrayNames inputs{.inputs = names.inputs};
  Dataset data;
  if (path.extension() == ".npy") {
    require_one_array(inputs, path, "test");
    data.source = path.string();
    data.inputs.push_back(to_input_array(read_npy(path), data.source));
  } else if (const auto archive = find_archive(path, input_files)) {
    data = read_npz_test_inputs(*archive, names);
  } else if (const auto cifar = find_cifar(path)) {
    require_one_array(inputs, path, "test");
    data = read_cifar_test(*cifar);
    data.targets.clear();
  } else {
    const auto files = find_all_idx(path, {test_images});
    require_one_array(inputs, path, "test");
    IdxArray images = read_idx(files[0]);
    data.inputs.push_back({without_first(images.shape), std::move(images.values)});
    data.source = files[0].string();
  }
  return data;
}

}  // namespace lockstep
