// From a path to two data sets: finds the files, reads them, and checks that images and labels belong together.
#include "data/idx.hpp"
#include "data/input_file.hpp"
#include "data/npz.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/mnist.hpp>

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
    "; fetch the files with scripts/fetch_data.sh mnist DIRECTORY, or leave the data directory out to train on the "
    "embedded digits.";

bool is_there(const fs::path& path) {
  std::error_code ignored;  // what cannot be examined is not there; opening it would say no more
  return fs::exists(path, ignored);
}

std::string list(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

// --- IDX ---------------------------------------------------------------------------------------------------------

/// The four files of a data set, each without its ending in "-idx3-ubyte" or "-idx1-ubyte".
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
    throw DataError(images_path.string() + " holds an array " + images.shape.to_string() +
                    ", but images have three extents: number, rows, columns; give the file of the images.");
  }
  if (labels.shape.rank() != 1) {
    throw DataError(labels_path.string() + " holds an array " + labels.shape.to_string() +
                    ", but labels have one extent, their number; give the file of the labels.");
  }
  if (images.shape[0] != labels.shape[0] || images.values.empty()) {
    throw DataError(
        images_path.string() + " holds " + images.shape.to_string() + " images and " + labels_path.filename().string() +
        " " + std::to_string(labels.shape[0]) +
        " labels, but every image needs its label, and there must be one at least; fetch both files again.");
  }
  return {Shape{images.shape[1], images.shape[2]}, std::move(images.values), Shape{},
          std::vector<std::int32_t>(labels.values.begin(), labels.values.end()),
          images_path.string() + " (labels: " + labels_path.filename().string() + ")"};
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
      throw DataError("Label " + std::to_string(i) + " of " + name + " is " + std::to_string(wide[i]) +
                      ", which is no class index; correct it.");
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
          name + " holds inputs of type '" + descr_of(array.type) +
          "'; save them as uint8 (pixels, divided by 255 when they are read) or as float32 (taken as they are).");
  }
}

/// The shape of one of `shape[0]` elements.
Shape without_first(const Shape& shape) {
  const auto extents = shape.extents();
  return Shape(std::vector<std::int64_t>(extents.begin() + 1, extents.end()));
}

Dataset read_npz_pair(const NpzArchive& archive, const std::string& file, const std::string& part) {
  const std::string inputs_name = file + ":x_" + part;
  const std::string targets_name = file + ":y_" + part;
  NpyArray inputs = archive.read("x_" + part);
  const NpyArray targets = archive.read("y_" + part);
  if (inputs.shape.rank() < 2 || targets.shape.rank() < 1 || inputs.shape[0] != targets.shape[0] ||
      inputs.bytes.empty() || targets.bytes.empty()) {
    throw DataError(inputs_name + " is an array " + inputs.shape.to_string() + " and y_" + part + " one of " +
                    targets.shape.to_string() +
                    ", but there must be one label for every example, and one example at least; save them anew.");
  }
  Dataset data;
  data.example_shape = without_first(inputs.shape);
  data.inputs = to_inputs(std::move(inputs), inputs_name);
  data.source = inputs_name + " (labels: y_" + part + ")";
  const Shape target = without_first(targets.shape);
  const bool whole = targets.type != NpyType::f4 && targets.type != NpyType::f8;
  if (whole && target.elements() == 1) {  // Keras' own data sets have them as (n,), or (n, 1)
    data.targets = to_classes(targets, targets_name);
  } else {
    data.target_shape = target;
    data.targets = to_floats(targets);
  }
  return data;
}

TrainTest read_npz(const fs::path& path) {
  const std::vector<std::uint8_t> bytes = read_whole_file(path);
  const NpzArchive archive(std::as_bytes(std::span(bytes)), path.string());
  return {read_npz_pair(archive, path.string(), "train"), read_npz_pair(archive, path.string(), "test")};
}

// --- both --------------------------------------------------------------------------------------------------------

TrainTest read_directory(const fs::path& directory) {
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
    throw IoError("The data directory " + directory.string() + " has no " + list(missing) + " (plain or .gz)" +
                  (missing.size() == idx_names.size() ? " and no mnist.npz" : "") + remedy);
  }
  return {read_idx_pair(found[0], found[1]), read_idx_pair(found[2], found[3])};
}

}  // namespace

TrainTest load_mnist(const fs::path& path) {
  if (path.empty()) return embedded_digits();
  std::error_code ignored;
  const bool is_directory = fs::is_directory(path, ignored);
  if (!is_directory && path.extension() != ".npz") {
    throw IoError("The data directory " + path.string() +
                  (is_there(path) ? " is neither a directory nor a .npz file" : " does not exist") + remedy);
  }
  TrainTest data = is_directory ? read_directory(path) : read_npz(path);
  if (data.train.example_shape != data.test.example_shape || data.train.inputs.index() != data.test.inputs.index()) {
    throw DataError("The training examples of " + path.string() + " have the shape " +
                    data.train.example_shape.to_string() + " and the test examples " +
                    data.test.example_shape.to_string() +
                    ", or one is of bytes and the other of floats; both must be alike, so save them anew.");
  }
  if (data.train.target_shape != data.test.target_shape || data.train.targets.index() != data.test.targets.index()) {
    throw DataError("The targets of the training examples of " + path.string() + " have the shape " +
                    data.train.target_shape.to_string() + " and those of the test examples " +
                    data.test.target_shape.to_string() +
                    ", or one is of whole numbers and the other of floats; both must be alike, so save them anew.");
  }
  return data;
}

}  // namespace lockstep
