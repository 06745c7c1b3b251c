// CIFAR-10 and CIFAR-100: their binary files, the Python version, and what is missing or damaged.
#include "data/pickle.hpp"
#include "support/catch.hpp"
#include "support/python_pickle.hpp"
#include "support/scratch_directory.hpp"
#include "unit/data/data_files.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/cifar.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
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

/// The same pictures.
void write_pickle(const fs::path& path, const std::string& labels_key, const std::vector<std::uint8_t>& labels) {
  std::vector<Bytes> of_records;
  for (std::size_t i = 0; i < labels.size(); ++i) of_records.emplace_back();
  const Bytes images = records(of_records);
  const std::string text =
      testing::PythonPickle::of_cifar(labels_key, labels, std::string(images.begin(), images.end()));
  write_file(path, Bytes(text.begin(), text.end()));
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

TEST_CASE("CIFAR's Python version has the same pictures as the binary one", "[cifar]") {
  const testing::ScratchDirectory scratch;
  const fs::path ten = scratch.path() / "ten";
  write_cifar10(ten / "binary");
  fs::create_directories(ten / "cifar-10-batches-py");
  for (std::uint8_t i = 1; i <= 5; ++i)
    write_pickle(ten / "cifar-10-batches-py" / ("data_batch_" + std::to_string(i)), "labels", {i, 9});
  write_pickle(ten / "cifar-10-batches-py" / "test_batch", "labels", {7, 0, 3});
  write_file(ten / "cifar-10-batches-py" / "batches.meta", {0x80, 2});
  const TrainTestSplit pickled = load_cifar10(ten);
  const TrainTestSplit binary = load_cifar10(ten / "binary");
  for (const auto& [mine, theirs] :
       {std::pair(&pickled.train, &binary.train), std::pair(&pickled.test, &binary.test)}) {
    CHECK(mine->input().shape == theirs->input().shape);
    CHECK(labels_of(*mine) == labels_of(*theirs));
    CHECK(std::get<SharedArray<std::uint8_t>>(mine->input().values) ==
          std::get<SharedArray<std::uint8_t>>(theirs->input().values));
  }
  const fs::path hundred = scratch.path() / "hundred";
  fs::create_directories(hundred);
  write_pickle(hundred / "train", "fine_labels", {42, 99});
  write_pickle(hundred / "test", "fine_labels", {5});
  write_file(hundred / "meta", {0x80, 2});
  CHECK(labels_of(load_cifar100(hundred).train) == Labels{42, 99});
}

TEST_CASE("damaged pickles and other programs are refused by name", "[cifar]") {
  const std::string whole = testing::PythonPickle::of_cifar("labels", {7, 0}, std::string(2 * 3 * pixels, 'x'));
  const auto message = [](const std::string& bytes) {
    return message_of<DataError>([&] {
      const Pickle pickle({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, "test_batch");
      (void)pickle.integers("labels");
      (void)pickle.byte_array("data");
    });
  };
  for (std::size_t size = 0; size < whole.size(); size += size < 200 ? 1 : 97)
    CHECK(lacking(message(whole.substr(0, size)), {"test_batch"}) == "");
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string bytes = whole;
    return message(bytes.replace(bytes.find(from), from.size(), to));
  };
  CHECK(lacking(changed("\x80\x02", "\x80\x05"), {"byte 1 ", "protocol 5"}) == "");
  CHECK(lacking(changed("labels", "Labels"), {"test_batch has no list of integers 'labels'"}) == "");
  CHECK(lacking(changed("U\x04"
                        "data",
                        "U\x04"
                        "Data"),
                {"test_batch has no array 'data'"}) == "");
  CHECK(lacking(changed("u1", "u2"), {"'data' is none of bytes"}) == "");
  CHECK(lacking(changed("numpy\ndtype", "posix\nabout"), {"'data' is none of bytes"}) == "");
  CHECK(lacking(changed("K\x02M", "K\x03M"), {"'data' has 6144 bytes"}) == "");
  CHECK(lacking(message("cos\nsystem\n(U\x04truetR."), {"something else than a dictionary"}) == "");
  CHECK(lacking(message("}q\x01(h\x01h\x01u."), {"no list of integers"}) == "");  // it holds itself
  CHECK(lacking(message("i"), {"an instruction of code 105"}) == "");
  CHECK(lacking(message("](e."), {"something else"}) == "");
  CHECK(lacking(message("}(K\x07u."), {"instruction"}) == "");
  CHECK(lacking(message("h\x07."), {"a reference to value 7"}) == "");
  CHECK(lacking(message(std::string(1'000'001, 'N')), {"more than 1000000 values"}) == "");
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
