// See cifar.hpp.
#include "data/cifar.hpp"

#include "data/pickle.hpp"
#include "data/sequential_file.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/cifar.hpp>

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

namespace lockstep {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t side = 32;
constexpr std::size_t channels = 3;
constexpr std::size_t pixels = side * side;

struct Version {
  const char* name;
  const char* data_set;          ///< of scripts/fetch_data.sh
  const char* binary_directory;  ///< of the archive
  const char* python_directory;
  const char* python_meta;         ///< the file that only the Python version has
  std::vector<const char*> train;  ///< without .bin, the names of the Python version
  const char* test;
  std::size_t labels;
  const char* labels_key;
};

const std::array<Version, 2>& versions() {
  static const std::array<Version, 2> all{
      {{"CIFAR-10",
        "cifar10",
        "cifar-10-batches-bin",
        "cifar-10-batches-py",
        "batches.meta",
        {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"},
        "test_batch",
        1,
        "labels"},
       {"CIFAR-100", "cifar100", "cifar-100-binary", "cifar-100-python", "meta", {"train"}, "test", 2, "fine_labels"}}};
  return all;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;  // a path that cannot be examined counts as missing
  return fs::is_regular_file(path, ignored);
}

/// The Python version's names are those of other data as well ("train"), so that its `meta` file tells.
std::optional<CifarFiles> find_version(const fs::path& directory, const Version& version, bool is_pickled) {
  if (is_pickled && !is_there(directory / version.python_meta)) return std::nullopt;
  const auto file = [&](const char* name) { return directory / (std::string(name) + (is_pickled ? "" : ".bin")); };
  CifarFiles files{.is_pickled = is_pickled, .labels = version.labels, .labels_key = version.labels_key};
  for (const char* name : version.train) files.train.push_back(file(name));
  files.test.push_back(file(version.test));
  std::vector<std::string> missing;
  for (const std::vector<fs::path>* list : {&files.train, &files.test}) {
    for (const fs::path& each : *list) {
      if (!is_there(each)) missing.push_back(each.filename().string());
    }
  }
  if (missing.size() == files.train.size() + files.test.size()) return std::nullopt;
  if (missing.empty()) return files;
  throw IoError(
      fmt::format("the data directory {} has no {}, which belong to {}; fetch them with "
                  "scripts/fetch_data.sh {} {}",
                  directory.string(), fmt::join(missing, ", "), version.name, version.data_set, directory.string()));
}

/// Appends an image whose channels are stored one after the other, with channels last.
void append_image(const std::uint8_t* image, std::vector<std::uint8_t>& images) {
  for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
    for (std::size_t c = 0; c < channels; ++c) images.push_back(image[c * pixels + pixel]);
  }
}

struct Pictures {
  std::vector<std::uint8_t> images;
  std::vector<std::int32_t> classes;

  void add_binary(const fs::path& path, std::size_t labels) {
    const std::size_t record = labels + channels * pixels;
    const std::vector<std::uint8_t> bytes = read_whole_file(path);
    if (bytes.empty() || bytes.size() % record != 0) {
      throw DataError(
          fmt::format("{} has {} bytes, but its records have {} each: {} and 32 x 32 x 3 bytes of a picture; fetch the "
                      "file again",
                      path.string(), bytes.size(), record, labels == 1 ? "a label" : "two labels"));
    }
    images.reserve(images.size() + bytes.size());
    for (std::size_t at = 0; at < bytes.size(); at += record) {
      classes.push_back(bytes[at + labels - 1]);
      append_image(bytes.data() + at + labels, images);
    }
  }

  void add_pickled(const fs::path& path, const std::string& labels_key) {
    const std::vector<std::uint8_t> bytes = read_whole_file(path);
    const Pickle pickle(bytes, path.string());
    const PickledArray data = pickle.byte_array("data");
    const std::vector<std::int64_t> labels = pickle.integers(labels_key);
    if (data.shape.size() != 2 || data.shape[1] != static_cast<std::int64_t>(channels * pixels) ||
        data.shape[0] != static_cast<std::int64_t>(labels.size())) {
      throw DataError(
          fmt::format("{} has {} labels and an array of shape ({}), but the images of as many labels have ({}, 3072)",
                      path.string(), labels.size(), fmt::join(data.shape, ", "), labels.size()));
    }
    images.reserve(images.size() + data.bytes.size());
    for (std::size_t i = 0; i < labels.size(); ++i) {
      classes.push_back(static_cast<std::int32_t>(labels[i]));
      append_image(reinterpret_cast<const std::uint8_t*>(data.bytes.data()) + i * channels * pixels, images);
    }
  }
};

Dataset read_cifar(const std::vector<fs::path>& paths, const CifarFiles& files) {
  Pictures pictures;
  for (const fs::path& path : paths) {
    if (files.is_pickled) {
      pictures.add_pickled(path, files.labels_key);
    } else {
      pictures.add_binary(path, files.labels);
    }
  }
  return {Shape{side, side, channels}, std::move(pictures.images), Shape{}, std::move(pictures.classes),
          paths.front().string()};
}

TrainTestSplit load_pictures(const fs::path& path, const char* name, std::int64_t classes) {
  TrainTestSplit data = load_dataset(path);
  for (const Dataset* part : {&data.train, &data.test}) {
    if (part->input().shape != Shape{side, side, channels}) {
      throw DataError(
          fmt::format("{} has examples of shape {}, but {}'s are (32, 32, 3); lockstep train takes other data, and so "
                      "does load_dataset() in C++",
                      part->source, part->input().shape.to_string(), name));
    }
    part->validate(classes);
  }
  return data;
}

}  // namespace

std::optional<CifarFiles> find_cifar(const fs::path& directory) {
  for (const bool is_pickled : {false, true}) {
    for (const Version& version : versions()) {
      const char* const archive = is_pickled ? version.python_directory : version.binary_directory;
      for (const fs::path& place : {directory, directory / archive}) {
        if (auto files = find_version(place, version, is_pickled)) return files;
      }
    }
  }
  return std::nullopt;
}

Dataset read_cifar_train(const CifarFiles& files) { return read_cifar(files.train, files); }

Dataset read_cifar_test(const CifarFiles& files) { return read_cifar(files.test, files); }

TrainTestSplit load_cifar10(const fs::path& path) {
  return path.empty() ? synthetic_pictures() : load_pictures(path, "CIFAR-10", 10);
}

TrainTestSplit load_cifar100(const fs::path& path) {
  if (path.empty()) throw UsageError("CIFAR-100 needs --data-dir; scripts/fetch_data.sh cifar100 DIRECTORY fetches it");
  return load_pictures(path, "CIFAR-100", 100);
}

}  // namespace lockstep
