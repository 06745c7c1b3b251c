// CIFAR-10 and CIFAR-100: their binary files, what is missing or damaged, and the Python version, which is refused.
#include "support/catch.hpp"
#include "support/scratch_directory.hpp"
#include "unit/data/data_files.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/cifar.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

using namespace lockstep;
using namespace lockstep::test;

namespace {

namespace fs = std::filesystem;

constexpr std::size_t pixels = 32 * 32;

/// Records whose labels are `labels`, one or two of each. A channel's values are 70 c plus the pixel's index.
Bytes records(const std::vector<Bytes>& labels) {
  Bytes file;
  for (const Bytes& of_record : labels) {
    file.insert(file.end(), of_record.begin(), of_record.end());
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t p = 0; p < pixels; ++p) file.push_back(static_cast<std::uint8_t>(70 * c + p % 64));
    }
  }
  return file;
}

void write_cifar10(const fs::path& directory) {
  fs::create_directories(directory);
  for (std::uint8_t i = 1; i <= 5; ++i) {
    write_file(directory / ("data_batch_" + std::to_string(i) + ".bin"), records({{i}, {9}}));
  }
  write_file(directory / "test_batch.bin", records({{7}, {0}, {3}}));
}

void write_cifar100(const fs::path& directory) {
  fs::create_directories(directory);
  write_file(directory / "train.bin", records({{1, 42}, {19, 99}}));
  write_file(directory / "test.bin", records({{0, 5}}));
}

using Labels = std::vector<std::int32_t>;

const SharedArray<std::int32_t>& labels_of(const Dataset& data) {
  return std::get<SharedArray<std::int32_t>>(data.target().values);
}

}  // namespace

TEST_CASE("CIFAR-10's binary files are read as pictures with channels last", "[cifar]") {
  const testing::ScratchDirectory scratch;
  for (const fs::path& place : {fs::path("."), fs::path("cifar-10-batches-bin")}) {
    const fs::path directory = scratch.path() / ("in" + place.string());
    write_cifar10(directory / place);
    const TrainTestSplit data = load_cifar10(directory);
    CHECK(data.train.input().shape == Shape{32, 32, 3});
    CHECK(labels_of(data.train) == Labels{1, 9, 2, 9, 3, 9, 4, 9, 5, 9});
    CHECK(labels_of(data.test) == Labels{7, 0, 3});
    const auto& values = std::get<SharedArray<std::uint8_t>>(data.test.input().values);
    REQUIRE(values.size() == 3 * 3 * pixels);
    for (const std::size_t pixel : {std::size_t{0}, std::size_t{65}, 2 * pixels + 1023}) {
      for (std::size_t c = 0; c < 3; ++c) CHECK(values[3 * pixel + c] == 70 * c + pixel % pixels % 64);
    }
    CHECK(labels_of(load_test_data(directory)) == Labels{7, 0, 3});
    CHECK(load_inputs(directory).input().shape == Shape{32, 32, 3});
  }
}

TEST_CASE("CIFAR-100's labels are those of its hundred classes", "[cifar]") {
  const testing::ScratchDirectory scratch;
  write_cifar100(scratch.path() / "cifar-100-binary");
  const TrainTestSplit data = load_cifar100(scratch.path());
  CHECK(labels_of(data.train) == Labels{42, 99});
  CHECK(labels_of(data.test) == Labels{5});
  CHECK_THROWS_AS(load_cifar10(scratch.path()), DataError);
  CHECK(lacking(message_of<UsageError>([] { (void)load_cifar100(""); }), {"--data-dir", "cifar100"}) == "");
}

TEST_CASE("damaged and incomplete CIFAR files are refused by name", "[cifar]") {
  const testing::ScratchDirectory scratch;
  write_cifar10(scratch.path());
  Bytes batch = records({{1}, {2}});
  batch.pop_back();
  write_file(scratch.path() / "data_batch_4.bin", batch);
  const auto load = [&] { (void)load_cifar10(scratch.path()); };
  CHECK(lacking(message_of<DataError>(load), {"data_batch_4.bin", "6145 bytes", "3073 each"}) == "");
  write_file(scratch.path() / "data_batch_4.bin", {});
  CHECK(lacking(message_of<DataError>(load), {"data_batch_4.bin", "0 bytes"}) == "");
  write_file(scratch.path() / "data_batch_4.bin", records({{10}}));
  CHECK(lacking(message_of<DataError>(load), {"data_batch_1.bin", "10"}) == "");
  fs::remove(scratch.path() / "data_batch_4.bin");
  CHECK(lacking(message_of<IoError>(load), {"data_batch_4.bin", "CIFAR-10", "fetch_data.sh cifar10"}) == "");
}

TEST_CASE("pickles of CIFAR are refused with a remedy", "[cifar]") {
  const testing::ScratchDirectory scratch;
  const fs::path ten = scratch.path() / "ten";
  fs::create_directories(ten / "cifar-10-batches-py");
  write_file(ten / "cifar-10-batches-py" / "data_batch_1", {0x80, 2});
  write_file(ten / "cifar-10-batches-py" / "batches.meta", {0x80, 2});
  CHECK(lacking(message_of<DataError>([&] { (void)load_cifar10(ten); }),
                {"data_batch_1", "pickle", "fetch_data.sh cifar10", "numpy.savez"}) == "");
  const fs::path hundred = scratch.path() / "hundred";
  fs::create_directories(hundred);
  write_file(hundred / "train", {0x80, 2});
  write_file(hundred / "meta", {0x80, 2});
  CHECK(lacking(message_of<DataError>([&] { (void)load_dataset(hundred); }), {"train", "CIFAR-100"}) == "");
}

TEST_CASE("other data is not taken for CIFAR", "[cifar]") {
  const testing::ScratchDirectory scratch;
  const Bytes labels = npy(npy_dictionary("|u1", "(1, 1)"), {3});
  const auto write = [&](const std::string& shape, std::size_t bytes) {
    const Bytes images = npy(npy_dictionary("|u1", shape), counting(bytes));
    write_file(
        scratch.path() / "cifar10.npz",
        zip_archive({{"x_train.npy", images}, {"y_train.npy", labels}, {"x_test.npy", images}, {"y_test.npy", labels}},
                    true));
  };
  write("(1, 32, 32, 3)", 3 * pixels);
  CHECK(labels_of(load_cifar10(scratch.path()).test) == Labels{3});
  write("(1, 28, 28)", std::size_t{28} * 28);
  CHECK(lacking(message_of<DataError>([&] { (void)load_cifar10(scratch.path()); }), {"(28, 28)", "(32, 32, 3)"}) == "");
}
