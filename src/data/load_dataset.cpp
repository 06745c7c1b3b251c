// Finds a dataset's files, reads them, and checks that inputs and targets match.
#include "data/idx.hpp"
#include "data/npz.hpp"
#include "data/sequential_file.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/load_dataset.hpp>

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
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
    "fetch the files with scripts/fetch_data.sh mnist DIRECTORY, or omit the data directory to train on the synthetic "
    "digits";

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

template <typename From, typename To>
std::vector<To> convert(const std::vector<std::uint8_t>& bytes) {
  std::vector<To> values(bytes.size() / sizeof(From));
  for (std::size_t i = 0; i < values.size(); ++i) {
    From value;
    std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
    values[i] = static_cast<To>(value);
  }
  return values;
}

std::vector<std::int32_t> to_classes(const NpyArray& array, const std::string& name) {
  if (array.type == NpyType::u1) return {array.bytes.begin(), array.bytes.end()};
  if (array.type == NpyType::i4) return convert<std::int32_t, std::int32_t>(array.bytes);
  const auto wide = convert<std::int64_t, std::int64_t>(array.bytes);
  for (std::size_t i = 0; i < wide.size(); ++i) {
    if (wide[i] < std::numeric_limits<std::int32_t>::min() || wide[i] > std::numeric_limits<std::int32_t>::max()) {
      throw DataError(fmt::format("label {} of {} is {}, which is not a class index; correct it", i, name, wide[i]));
    }
  }
  return {wide.begin(), wide.end()};
}

std::vector<float> to_floats(const NpyArray& array) {
  switch (array.type) {
    case NpyType::u1: return {array.bytes.begin(), array.bytes.end()};
    case NpyType::i4: return convert<std::int32_t, float>(array.bytes);
    case NpyType::i8: return convert<std::int64_t, float>(array.bytes);
    case NpyType::f4: return convert<float, float>(array.bytes);
    case NpyType::f8: break;
  }
  return convert<double, float>(array.bytes);
}

decltype(Dataset::inputs) to_inputs(NpyArray array, const std::string& name) {
  switch (array.type) {
    case NpyType::u1: return std::move(array.bytes);
    case NpyType::f4:
    case NpyType::f8: return to_floats(array);
    default:
      throw DataError(
          fmt::format("{} holds inputs of type '{}'; save them as uint8 (pixels, which are divided by 255) "
                      "or as float32 (used as they are)",
                      name, descr_of(array.type)));
  }
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
  data.example_shape = without_first(inputs.shape);
  data.inputs = to_inputs(std::move(inputs), inputs_name);
  data.source = fmt::format("{} (labels: y_{})", inputs_name, split);
  const Shape target = without_first(targets.shape);
  const bool is_integer = targets.type != NpyType::f4 && targets.type != NpyType::f8;
  if (is_integer && target.elements() == 1) {  // Keras' own datasets have labels of shape (n,) or (n, 1)
    data.targets = to_classes(targets, targets_name);
  } else {
    data.target_shape = target;
    data.targets = to_floats(targets);
  }
  return data;
}

TrainTestSplit read_npz(const fs::path& path) {
  const std::vector<std::uint8_t> bytes = read_whole_file(path);
  const NpzArchive archive(std::as_bytes(std::span(bytes)), path.string());
  return {read_npz_pair(archive, path.string(), "train"), read_npz_pair(archive, path.string(), "test")};
}

// --- both --------------------------------------------------------------------------------------------------------

TrainTestSplit read_directory(const fs::path& directory) {
  std::array<fs::path, idx_names.size()> found;
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < idx_names.size(); ++i) {
    if (auto path = find_idx(directory, idx_names[i])) {
      found[i] = std::move(*path);
    } else {
      missing.push_back(std::string(idx_names[i].stem) + "-" + idx_names[i].kind);
    }
  }
  if (missing.size() == idx_names.size() && is_there(directory / "mnist.npz")) return read_npz(directory / "mnist.npz");
  if (!missing.empty()) {
    throw IoError(fmt::format("the data directory {} has no {} (plain or .gz){}; {}", directory.string(),
                              fmt::join(missing, ", "), missing.size() == idx_names.size() ? " and no mnist.npz" : "",
                              remedy));
  }
  return {read_idx_pair(found[0], found[1]), read_idx_pair(found[2], found[3])};
}

}  // namespace

TrainTestSplit load_dataset(const fs::path& path) {
  std::error_code ignored;
  const bool is_directory = fs::is_directory(path, ignored);
  if (!is_directory && path.extension() != ".npz") {
    throw IoError(fmt::format("the data directory {} {}; {}", path.string(),
                              is_there(path) ? "is neither a directory nor a .npz file" : "does not exist", remedy));
  }
  TrainTestSplit data = is_directory ? read_directory(path) : read_npz(path);
  if (data.train.example_shape != data.test.example_shape || data.train.inputs.index() != data.test.inputs.index()) {
    const auto kind = [](const Dataset& set) { return set.inputs.index() == 0 ? "bytes" : "floats"; };
    throw DataError(
        fmt::format("the training examples of {} are {} of shape {} and the test examples {} of shape {}; "
                    "both must match, so save them again",
                    path.string(), kind(data.train), data.train.example_shape.to_string(), kind(data.test),
                    data.test.example_shape.to_string()));
  }
  if (data.train.target_shape != data.test.target_shape || data.train.targets.index() != data.test.targets.index()) {
    const auto kind = [](const Dataset& set) { return set.targets.index() == 0 ? "whole numbers" : "floats"; };
    throw DataError(
        fmt::format("the training targets of {} are {} of shape {} and the test targets {} of shape {}; both "
                    "must match, so save them again",
                    path.string(), kind(data.train), data.train.target_shape.to_string(), kind(data.test),
                    data.test.target_shape.to_string()));
  }
  return data;
}

}  // namespace lockstep
