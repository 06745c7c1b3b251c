// See cifar.hpp.
#include "data/cifar.hpp"

#include "data/sequential_file.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/cifar.hpp>

#include <fmt/format.h>

#include <algorithm>
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
        1},
       {"CIFAR-100", "cifar100", "cifar-100-binary", "cifar-100-python", "meta", {"train"}, "test", 2}}};
  return all;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;  // a path that cannot be examined counts as missing
  return fs::is_regular_file(path, ignored);
}

fs::path binary_file(const fs::path& directory, const char* name) { return directory / (std::string(name) + ".bin"); }

std::optional<CifarFiles> find_binary(const fs::path& directory, const Version& version) {
  CifarFiles files;
  files.labels = version.labels;
  for (const char* name : version.train) files.train.push_back(binary_file(directory, name));
  files.test.push_back(binary_file(directory, version.test));
  std::vector<std::string> missing;
  for (const std::vector<fs::path>* list : {&files.train, &files.test}) {
    for (const fs::path& file : *list) {
      if (!is_there(file)) missing.push_back(file.filename().string());
    }
  }
  if (missing.size() == files.train.size() + files.test.size()) return std::nullopt;
  if (missing.empty()) return files;
  throw IoError(
      fmt::format("the data directory {} has no {}, which belong to {}; fetch them with "
                  "scripts/fetch_data.sh {} {}",
                  directory.string(), fmt::join(missing, ", "), version.name, version.data_set, directory.string()));
}

void refuse_python(const fs::path& directory, const Version& version) {
  const fs::path file = directory / version.train.front();
  if (!is_there(file) || !is_there(directory / version.python_meta)) return;
  throw DataError(fmt::format(
      "{} is a pickle of the Python version of {}, and a pickle is a program; fetch the binary version with "
      "scripts/fetch_data.sh {} DIRECTORY, or save the arrays with numpy.savez as x_train, y_train, x_test "
      "and y_test",
      file.string(), version.name, version.data_set));
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
  for (const Version& version : versions()) {
    for (const fs::path& place : {directory, directory / version.binary_directory}) {
      if (auto files = find_binary(place, version)) return files;
    }
  }
  for (const Version& version : versions()) {
    refuse_python(directory, version);
    refuse_python(directory / version.python_directory, version);
  }
  return std::nullopt;
}

Dataset read_cifar(const std::vector<fs::path>& files, std::size_t labels) {
  const std::size_t record = labels + channels * pixels;
  std::vector<std::uint8_t> images;
  std::vector<std::int32_t> classes;
  for (const fs::path& path : files) {
    const std::vector<std::uint8_t> bytes = read_whole_file(path);
    if (bytes.empty() || bytes.size() % record != 0) {
      throw DataError(
          fmt::format("{} has {} bytes, but its records have {} each: {} and 32 x 32 x 3 bytes of a picture; fetch the "
                      "file again",
                      path.string(), bytes.size(), record, labels == 1 ? "a label" : "two labels"));
    }
    const std::size_t count = bytes.size() / record;
    const std::size_t first = classes.size();
    images.resize((first + count) * channels * pixels);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint8_t* const from = bytes.data() + i * record;
      classes.push_back(from[labels - 1]);
      std::uint8_t* to = images.data() + (first + i) * channels * pixels;
      for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
        for (std::size_t c = 0; c < channels; ++c) *to++ = from[labels + c * pixels + pixel];
      }
    }
  }
  return {Shape{side, side, channels}, std::move(images), Shape{}, std::move(classes), files.front().string()};
}

TrainTestSplit load_cifar10(const fs::path& path) {
  return path.empty() ? synthetic_pictures() : load_pictures(path, "CIFAR-10", 10);
}

TrainTestSplit load_cifar100(const fs::path& path) {
  if (path.empty()) throw UsageError("CIFAR-100 needs --data-dir; scripts/fetch_data.sh cifar100 DIRECTORY fetches it");
  return load_pictures(path, "CIFAR-100", 100);
}

}  // namespace lockstep
