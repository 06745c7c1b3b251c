// load_dataset: which files it finds, how it reads them, and its messages for missing or mismatched files.
#include "support/catch.hpp"
#include "support/messages.hpp"
#include "support/scratch_directory.hpp"
#include "unit/data/data_files.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/load_dataset.hpp>
#include <lockstep/data/mnist.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Pixels = std::vector<std::uint8_t>;
using Labels = std::vector<std::int32_t>;

void write_idx_set(const std::filesystem::path& directory, const std::string& separator, bool packed) {
  const auto write = [&](const std::string& stem, const std::string& kind, const Bytes& bytes) {
    write_file(directory / (stem + separator + kind + (packed ? ".gz" : "")), packed ? gzip(bytes) : bytes);
  };
  write("train-images", "idx3-ubyte", idx({6, 3, 2}, counting(36)));
  write("train-labels", "idx1-ubyte", idx({6}, {0, 1, 2, 9, 4, 5}));
  write("t10k-images", "idx3-ubyte", idx({2, 3, 2}, counting(12)));
  write("t10k-labels", "idx1-ubyte", idx({2}, {7, 8}));
}

void check_small_set(const TrainTestSplit& data) {
  CHECK(data.train.size() == 6);
  CHECK(data.test.size() == 2);
  CHECK(data.train.input().shape == Shape{3, 2});
  CHECK(data.test.input().shape == Shape{3, 2});
  CHECK(data.train.target().shape == Shape{});
  CHECK(std::get<SharedArray<std::uint8_t>>(data.train.input().values) == counting(36));
  CHECK(std::get<SharedArray<std::uint8_t>>(data.test.input().values) == counting(12));
  CHECK(std::get<SharedArray<std::int32_t>>(data.train.target().values) == Labels{0, 1, 2, 9, 4, 5});
  CHECK(std::get<SharedArray<std::int32_t>>(data.test.target().values) == Labels{7, 8});
  data.train.validate(10);
  data.test.validate(10);
}

using Members = std::vector<std::pair<std::string, Bytes>>;

Members npz_members() {
  return {{"x_train.npy", npy(npy_dictionary("|u1", "(6, 3, 2)"), counting(36))},
          {"y_train.npy", npy(npy_dictionary("<i8", "(6,)"), bytes_of<std::int64_t>({0, 1, 2, 9, 4, 5}))},
          {"x_test.npy", npy(npy_dictionary("|u1", "(2, 3, 2)"), counting(12))},
          {"y_test.npy", npy(npy_dictionary("|u1", "(2,)"), {7, 8})}};
}

TrainTestSplit load_npz(const Members& members) {
  const testing::ScratchDirectory directory;
  write_file(directory.path() / "any.npz", zip_archive(members, true));
  return load_dataset(directory.path() / "any.npz");
}

void check_npz_refused(std::size_t member, const Bytes& content, const std::string& words) {
  Members members = npz_members();
  members.at(member).second = content;
  CHECK(lacking(message_of<DataError>([&] { (void)load_npz(members); }), {"any.npz", words}) == "");
}

template <typename E>
void check_directory_refused(const std::filesystem::path& path, const std::vector<std::string>& words) {
  CHECK(lacking(message_of<E>([&] { (void)load_dataset(path); }), words) == "");
}

}  // namespace

TEST_CASE("IDX files are found under their usual names, plain or compressed", "[load_dataset]") {
  for (const auto* separator : {"-", "."}) {
    for (const bool packed : {false, true}) {
      const testing::ScratchDirectory directory;
      write_idx_set(directory.path(), separator, packed);
      check_small_set(load_dataset(directory.path()));
    }
  }
}

TEST_CASE("a plain file is preferred to a compressed one", "[load_dataset]") {
  const testing::ScratchDirectory directory;
  write_idx_set(directory.path(), "-", false);
  for (const auto* name : {"train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"}) {
    write_file(directory.path() / name, {'x'});
  }
  check_small_set(load_dataset(directory.path()));
}

TEST_CASE("npz files are read by path and from a directory", "[load_dataset]") {
  check_small_set(load_npz(npz_members()));
  const testing::ScratchDirectory directory;
  write_file(directory.path() / "mnist.npz", zip_archive(npz_members(), false));
  check_small_set(load_dataset(directory.path()));
  write_file(directory.path() / "cifar10.npz", zip_archive(npz_members(), false));
  const std::string message =
      testing::message_of<UsageError>([&] { static_cast<void>(load_dataset(directory.path())); });
  CHECK(message.find("mnist.npz and cifar10.npz; name one") != std::string::npos);
}

TEST_CASE("npz inputs may be floats and labels any integers", "[load_dataset]") {
  Members members = npz_members();
  const std::vector<float> values{0.5F, -1.0F, 2.0F, 0.0F, 1e-3F, 7.0F};
  members[0].second = npy(npy_dictionary("<f4", "(3, 2)"), bytes_of(values));
  members[1].second = npy(npy_dictionary("<i4", "(3,)"), bytes_of<std::int32_t>({3, 0, -1}));
  members[2].second = npy(npy_dictionary("<f8", "(2, 2)"), bytes_of<double>({0.25, 3.0, -4.0, 1.0}));
  const TrainTestSplit data = load_npz(members);
  CHECK(data.train.input().shape == Shape{2});
  CHECK(std::get<SharedArray<float>>(data.train.input().values) == values);
  CHECK(std::get<SharedArray<float>>(data.test.input().values) == std::vector<float>{0.25F, 3.0F, -4.0F, 1.0F});
  CHECK(std::get<SharedArray<std::int32_t>>(data.train.target().values) == Labels{3, 0, -1});
  CHECK_THROWS_AS(data.train.validate(10), DataError);
}

TEST_CASE("npz images may have channels and labels may be a column", "[load_dataset]") {
  Members members = npz_members();
  members[0].second = npy(npy_dictionary("|u1", "(6, 2, 1, 3)"), counting(36));
  members[1].second = npy(npy_dictionary("<i8", "(6, 1)"), bytes_of<std::int64_t>({0, 1, 2, 9, 4, 5}));
  members[2].second = npy(npy_dictionary("|u1", "(2, 2, 1, 3)"), counting(12));
  members[3].second = npy(npy_dictionary("|u1", "(2, 1)"), {7, 8});
  const TrainTestSplit data = load_npz(members);
  CHECK(data.train.input().shape == Shape{2, 1, 3});
  CHECK(data.train.target().shape == Shape{});
  CHECK(std::get<SharedArray<std::int32_t>>(data.train.target().values) == Labels{0, 1, 2, 9, 4, 5});
  CHECK(std::get<SharedArray<std::int32_t>>(data.test.target().values) == Labels{7, 8});
  data.train.validate(10);
}

TEST_CASE("npz targets that are not class indices are dense", "[load_dataset]") {
  Members members = npz_members();
  members[1].second = npy(npy_dictionary("<f4", "(6,)"), bytes_of<float>({0.5F, 1, 2, 3, 4, -5}));
  members[3].second = npy(npy_dictionary("<f8", "(2,)"), bytes_of<double>({0.25, -1}));
  TrainTestSplit data = load_npz(members);
  CHECK(data.train.target().shape == Shape{});
  CHECK(std::get<SharedArray<float>>(data.train.target().values) == std::vector<float>{0.5F, 1, 2, 3, 4, -5});
  CHECK(std::get<SharedArray<float>>(data.test.target().values) == std::vector<float>{0.25F, -1});

  members[1].second = npy(npy_dictionary("|u1", "(6, 2)"), {1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1});
  members[3].second = npy(npy_dictionary("<i8", "(2, 2)"), bytes_of<std::int64_t>({0, 1, 1, 0}));
  data = load_npz(members);
  CHECK(data.train.target().shape == Shape{2});
  CHECK(std::get<SharedArray<float>>(data.test.target().values) == std::vector<float>{0, 1, 1, 0});
  data.train.validate(2);
}

TEST_CASE("npz files may hold weights of examples", "[load_dataset]") {
  Members members = npz_members();
  CHECK(load_npz(members).train.sample_weights.empty());
  members.emplace_back("sample_weight.npy", npy(npy_dictionary("<f8", "(6,)"), bytes_of<double>({1, 0, 0.5, 2, 1, 1})));
  TrainTestSplit data = load_npz(members);
  CHECK(data.train.sample_weights == std::vector<float>{1, 0, 0.5F, 2, 1, 1});
  CHECK(data.train.slice(2, 4).sample_weights == std::vector<float>{0.5F, 2});
  CHECK(data.test.sample_weights.empty());
  data.train.validate(10);
  members.back().second = npy(npy_dictionary("<f8", "(6, 1)"), bytes_of<double>({1, 0, 0.5, 2, 1, 1}));
  CHECK(load_npz(members).train.sample_weights == data.train.sample_weights);
  data.train.sample_weights = data.train.sample_weights.slice(0, 5);
  CHECK_THROWS_AS(data.train.validate(10), DataError);
  members.emplace_back("sample_weight_test.npy", npy(npy_dictionary("|u1", "(3,)"), {1, 2, 3}));
  CHECK(lacking(message_of<DataError>([&] { (void)load_npz(members); }),
                {"sample_weight_test", "(3,)", "every example of x_test"}) == "");
}

TEST_CASE("npz files hold no data that nothing reads", "[load_dataset]") {
  const auto load_with = [](const std::string& name) {
    Members members = npz_members();
    members.emplace_back(name + ".npy", npy(npy_dictionary("|u1", "(6,)"), counting(6)));
    return message_of<DataError>([&] { (void)load_npz(members); });
  };
  for (const std::string name : {"x_valid", "y_validation", "validation_x", "valid_Y", "sample_weights",
                                 "sample_weight_train", "class_weight"}) {
    CHECK(lacking(load_with(name), {":" + name, "would not be used", "sample_weight_val"}) == "");
  }
  CHECK(load_with("X_Val").ends_with(":X_Val would not be used; rename it to x_val, or leave it out"));
  CHECK(lacking(load_with("ids"), {":ids, which has as many entries as x_train, would not be used"}) == "");
  CHECK(load_with("sample_weight_val")
            .ends_with(
                ":sample_weight_val would not be used, because there is no x_val; add it, or leave the weights out"));
}

TEST_CASE("an array with as many entries as there are examples is not dropped", "[load_dataset]") {
  const auto load_with = [](const Members& more) {
    Members members = npz_members();
    members.insert(members.end(), more.begin(), more.end());
    return message_of<DataError>([&] { (void)load_npz(members); });
  };
  const Bytes six = npy(npy_dictionary("|u1", "(6,)"), counting(6));
  const Bytes four = npy(npy_dictionary("|u1", "(4,)"), counting(4));
  CHECK(lacking(load_with({{"sample_wts.npy", six}}),
                {":sample_wts, which has as many entries as x_train, would not be used", "or leave it out"}) == "");
  CHECK(load_with({{"classes.npy", four}, {"weather.npy", four}}).empty());
  CHECK(lacking(message_of<DataError>([&] {
                  (void)load_npz({{"images.npy", four}, {"labels.npy", four}});
                }),
                {":labels, which has as many entries as images,"}) == "");
  CHECK(load_with({{"colours.npy", four}}).empty());
  CHECK(load_with({{"scalar.npy", npy(npy_dictionary("|u1", "()"), counting(1))}}).empty());
}

TEST_CASE("whole numbers in one split may be floats in another", "[load_dataset]") {
  for (const std::size_t split : {1, 3}) {  // of y_train, of y_test
    Members members = npz_members();
    members[split].second = split == 1 ? npy(npy_dictionary("<f4", "(6,)"), bytes_of<float>({0, 1, 2, 9, 4, 5}))
                                       : npy(npy_dictionary("<f4", "(2,)"), bytes_of<float>({7, 8}));
    const TrainTestSplit data = load_npz(members);
    CHECK(std::get<SharedArray<float>>(data.train.target().values) == std::vector<float>{0, 1, 2, 9, 4, 5});
    CHECK(std::get<SharedArray<float>>(data.test.target().values) == std::vector<float>{7, 8});
  }
}

TEST_CASE("the names that a command reads are its remedy", "[load_dataset]") {
  const testing::ScratchDirectory directory;
  const auto file = directory.path() / "any.npz";
  write_file(file, zip_archive({{"x.npy", npy(npy_dictionary("|u1", "(6,)"), counting(6))}}, true));
  CHECK(lacking(message_of<DataError>([&] { (void)load_inputs(file); }),
                {":x would not be used; rename it to x_test, or"}) == "");
  CHECK(lacking(message_of<DataError>([&] { (void)load_test_data(file); }),
                {"rename it to x_test, y_test or sample_weight_test, or"}) == "");
  CHECK(lacking(message_of<DataError>([&] { (void)load_dataset(file); }),
                {"rename it to x_train, y_train, x_test", "sample_weight_test or sample_weight_val, or"}) == "");
}

TEST_CASE("a test set may be optional", "[load_dataset]") {
  Members members = npz_members();
  members.resize(2);
  CHECK(lacking(message_of<DataError>([&] { (void)load_npz(members); }), {"no member x_test.npy"}) == "");
  const testing::ScratchDirectory directory;
  const auto file = directory.path() / "any.npz";
  write_file(file, zip_archive(members, true));
  const TrainTestSplit data = load_dataset(file, {}, TestSet::optional);
  CHECK(data.train.size() == 6);
  CHECK(data.test.size() == 0);
  members.push_back(npz_members()[2]);
  write_file(file, zip_archive(members, true));
  CHECK(lacking(message_of<DataError>([&] { (void)load_dataset(file, {}, TestSet::optional); }),
                {"no member y_test.npy"}) == "");
}

TEST_CASE("npz files may hold a validation set", "[load_dataset]") {
  Members members = npz_members();
  CHECK(!load_npz(members).validation);
  members.emplace_back("x_val.npy", npy(npy_dictionary("|u1", "(1, 2, 3)"), counting(6)));
  CHECK(lacking(message_of<DataError>([&] { (void)load_npz(members); }), {"no member y_val.npy"}) == "");
  members.emplace_back("y_val.npy", npy(npy_dictionary("|u1", "(1,)"), {7}));
  CHECK(lacking(message_of<DataError>([&] { (void)load_npz(members); }), {"x_val", "one dtype and one shape"}) == "");
  members[members.size() - 2].second = members[2].second;
  members.back().second = members[3].second;
  const TrainTestSplit data = load_npz(members);
  CHECK(data.validation->size() == data.test.size());
  CHECK(data.validation->target().values == data.test.target().values);
}

TEST_CASE("examples may be single numbers", "[load_dataset]") {
  Members members = npz_members();
  members[0].second = npy(npy_dictionary("<f4", "(6,)"), bytes_of<float>({1, 2, 3, 4, 5, 6}));
  members[2].second = npy(npy_dictionary("<f4", "(2,)"), bytes_of<float>({7, 8}));
  const TrainTestSplit data = load_npz(members);
  CHECK(data.train.input().shape == Shape{});
  CHECK(data.train.size() == 6);
  CHECK(data.test.size() == 2);
}

TEST_CASE("a label that is NaN is found before kinds of labels are compared", "[load_dataset]") {
  check_npz_refused(1, npy(npy_dictionary("<f4", "(6,)"), bytes_of<float>({1, 2, 3, std::nanf(""), 5, 6})),
                    "the target of example 3 of");
}

TEST_CASE("mismatched npz arrays are rejected", "[load_dataset]") {
  check_npz_refused(1, npy(npy_dictionary("|u1", "(5,)"), counting(5)), "one label for every example");
  check_npz_refused(1, npy(npy_dictionary("|u1", "()"), counting(1)), "one label for every example");
  check_npz_refused(1, npy(npy_dictionary("|u1", "(6, 0)"), {}), "one label for every example");
  check_npz_refused(1, npy(npy_dictionary("|u1", "(6, 2)"), counting(12)), "one dtype and one shape");
  check_npz_refused(1, npy(npy_dictionary("<i8", "(6,)"), bytes_of<std::int64_t>({0, 0, 1LL << 40, 0, 0, 0})),
                    "label 2 of");
  check_npz_refused(0, npy(npy_dictionary("|u1", "(5,)"), counting(5)), "one label for every example");
  check_npz_refused(0, npy(npy_dictionary("|u1", "(6,)"), counting(6)), "one dtype and one shape");
  check_npz_refused(0, npy(npy_dictionary("<i4", "(6, 2)"), counting(48)), "one dtype and one shape");
  check_npz_refused(2, npy(npy_dictionary("|u1", "(2, 2, 3)"), counting(12)), "one dtype and one shape");
  check_npz_refused(2, npy(npy_dictionary("<f4", "(2, 3, 2)"), counting(48)), "one dtype and one shape");
  check_npz_refused(2, npy(npy_dictionary("|u1", "(0, 3, 2)"), {}), "one label for every example");
  Members members = npz_members();
  members.pop_back();
  CHECK(lacking(message_of<DataError>([&] { (void)load_npz(members); }), {"any.npz", "no member y_test.npy"}) == "");
}

TEST_CASE("mismatched IDX files are rejected", "[load_dataset]") {
  const testing::ScratchDirectory directory;
  const auto refused = [&](const std::string& name, const Bytes& content, const std::string& words) {
    write_idx_set(directory.path(), "-", false);
    write_file(directory.path() / name, content);
    check_directory_refused<DataError>(directory.path(), {name, words});
  };
  refused("train-images-idx3-ubyte", idx({6, 6}, counting(36)), "three dimensions");
  refused("train-labels-idx1-ubyte", idx({6, 1}, counting(6)), "one dimension");
  refused("train-labels-idx1-ubyte", idx({5}, counting(5)), "every image needs its label");
  refused("t10k-images-idx3-ubyte", idx({2, 0, 2}, {}), "every image needs its label");
  refused("t10k-labels-idx1-ubyte", idx({2}, {1}), "but has 1");
  write_idx_set(directory.path(), "-", false);
  write_file(directory.path() / "t10k-images-idx3-ubyte", idx({2, 2, 3}, counting(12)));
  check_directory_refused<DataError>(directory.path(), {"one dtype and one shape", "(3, 2)", "(2, 3)"});
}

TEST_CASE("an error for missing files lists the names tried", "[load_dataset]") {
  const testing::ScratchDirectory directory;
  const std::string path = directory.path().string();
  check_directory_refused<UsageError>(directory.path() / "absent", {path, "does not exist", "scripts/fetch_data.sh"});
  check_directory_refused<UsageError>(directory.path() / "absent.npz", {path, "No such file"});
  check_directory_refused<UsageError>(
      directory.path(), {path, "train-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "FILE.npz", "fetch_data.sh"});
  write_idx_set(directory.path(), "-", true);
  std::filesystem::remove(directory.path() / "t10k-images-idx3-ubyte.gz");
  const std::string message = message_of<IoError>([&] { (void)load_dataset(directory.path()); });
  CHECK(lacking(message, {path, "t10k-images-idx3-ubyte"}) == "");
  CHECK(message.find("t10k-labels") == std::string::npos);  // this file exists
  write_file(directory.path() / "file", {'x'});
  check_directory_refused<IoError>(directory.path() / "file", {"neither a directory nor a .npz file"});
}

TEST_CASE("load_mnist takes images of MNIST's shape only", "[load_dataset]") {
  const testing::ScratchDirectory directory;
  const auto path = directory.path() / "any.npz";
  Members members = npz_members();
  write_file(path, zip_archive(members, true));
  CHECK(lacking(message_of<DataError>([&] { (void)load_mnist(path); }), {"any.npz", "(3, 2)", "load_dataset()"}) == "");
  members[0].second = npy(npy_dictionary("|u1", "(6, 28, 28)"), counting(6 * 784));
  members[2].second = npy(npy_dictionary("|u1", "(2, 28, 28)"), counting(2 * 784));
  write_file(path, zip_archive(members, true));
  CHECK(load_mnist(path).train.input().shape == Shape{28, 28});
}

TEST_CASE("real MNIST matches its known content", "[load_dataset]") {
  const char* directory = std::getenv("LOCKSTEP_MNIST_DIR");
  if (directory == nullptr) {
    std::cout << "skipped: real MNIST, because LOCKSTEP_MNIST_DIR is not set\n";
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  const TrainTestSplit data = load_mnist(directory);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::cout << "real MNIST loaded in " << seconds.count() << " s\n";
  CHECK(data.train.input().shape == Shape{28, 28});
  CHECK(data.train.size() == 60000);
  CHECK(data.test.size() == 10000);
  data.train.validate(10);
  data.test.validate(10);
  const auto& labels = std::get<SharedArray<std::int32_t>>(data.train.target().values);
  CHECK(Labels(labels.begin(), labels.begin() + 8) == Labels{5, 0, 4, 1, 9, 2, 1, 3});
  std::uint64_t sum = 0;
  for (const std::uint8_t pixel : std::get<SharedArray<std::uint8_t>>(data.train.input().values)) sum += pixel;
  CHECK(static_cast<double>(sum) / (60000.0 * 784.0 * 255.0) ==
        Approx(0.1307).margin(0.0001));  // the known mean of MNIST
}

TEST_CASE("test data and inputs need no training data", "[dataset]") {
  const testing::ScratchDirectory directory;
  const Members all = npz_members();
  write_file(directory.path() / "test.npz", zip_archive({all[2], all[3]}, true));
  const Dataset test = load_test_data(directory.path() / "test.npz");
  CHECK(std::get<SharedArray<std::int32_t>>(test.target().values) == Labels{7, 8});
  CHECK(lacking(message_of<DataError>([&] { (void)load_dataset(directory.path() / "test.npz"); }), {"x_train"}) == "");
  write_file(directory.path() / "inputs.npz", zip_archive({all[2]}, true));
  write_file(directory.path() / "inputs.npy", all[2].second);
  write_file(directory.path() / "t10k-images-idx3-ubyte", idx({2, 3, 2}, counting(12)));
  for (const std::string name : {"test.npz", "inputs.npz", "inputs.npy", "."}) {
    CAPTURE(name);
    const Dataset inputs = load_inputs(directory.path() / name);
    CHECK(inputs.size() == 2);
    CHECK(inputs.input().shape == Shape{3, 2});
    CHECK(std::get<SharedArray<std::uint8_t>>(inputs.input().values) == counting(12));
  }
  CHECK(lacking(message_of<DataError>([&] { (void)load_test_data(directory.path() / "inputs.npz"); }), {"y_test"}) ==
        "");
  CHECK(lacking(message_of<IoError>([&] { (void)load_test_data(directory.path()); }),
                {"t10k-labels", "name one of its 2 .npz files, such as", "inputs.npz"}) == "");
  Bytes cut = all[2].second;
  cut.pop_back();
  write_file(directory.path() / "cut.npy", cut);
  CHECK(lacking(message_of<DataError>([&] { (void)load_inputs(directory.path() / "cut.npy"); }), {"12 bytes"}) == "");
  write_file(directory.path() / "flat.npy", npy(npy_dictionary("|u1", "(12,)"), counting(12)));
  CHECK(load_inputs(directory.path() / "flat.npy").size() == 12);
  write_file(directory.path() / "one.npy", npy(npy_dictionary("|u1", "()"), counting(1)));
  CHECK(lacking(message_of<DataError>([&] { (void)load_inputs(directory.path() / "one.npy"); }),
                {"shape ()", "at least one example"}) == "");
}

TEST_CASE("the files of a dataset are those that are read", "[load_dataset]") {
  const testing::ScratchDirectory scratch;
  CHECK(dataset_files(scratch / "x.npz") == std::vector{scratch / "x.npz"});
  for (const char* name : {"model.h5", "train-images-idx3-ubyte.gz", "t10k-labels.idx1-ubyte", "other.npz"}) {
    write_file(scratch / name, Bytes{1});
  }
  CHECK(dataset_files(scratch.path()) ==
        std::vector{scratch / "train-images-idx3-ubyte.gz", scratch / "t10k-labels.idx1-ubyte"});
  write_file(scratch / "cifar10.npz", Bytes{1});
  CHECK(dataset_files(scratch.path()).front() == scratch / "cifar10.npz");
}

TEST_CASE("npz files hold an array for each of several inputs", "[load_dataset]") {
  const ArrayNames names{.inputs = {"image", "price"}};
  const Members labels{{"y_train.npy", npy(npy_dictionary("|u1", "(2,)"), {0, 1})},
                       {"y_test.npy", npy(npy_dictionary("|u1", "(1,)"), {1})}};
  Members members{{"x_train_image.npy", npy(npy_dictionary("|u1", "(2, 3)"), counting(6))},
                  {"x_test_image.npy", npy(npy_dictionary("|u1", "(1, 3)"), counting(3))},
                  {"x_train_price.npy", npy(npy_dictionary("<f4", "(2, 1)"), bytes_of<float>({0.5F, -2}))},
                  {"x_test_price.npy", npy(npy_dictionary("<f4", "(1, 1)"), bytes_of<float>({4}))}};
  members.insert(members.end(), labels.begin(), labels.end());
  const testing::ScratchDirectory directory;
  const std::filesystem::path file = directory.path() / "any.npz";
  const auto load = [&](const Members& written) {
    write_file(file, zip_archive(written, true));
    return load_dataset(file, names);
  };
  const TrainTestSplit data = load(members);
  REQUIRE(data.train.inputs.size() == 2);
  CHECK(data.train.size() == 2);
  CHECK(data.train.inputs[0].name == "image");
  CHECK(std::get<SharedArray<std::uint8_t>>(data.train.inputs[0].values) == counting(6));
  CHECK(data.train.inputs[1].name == "price");
  CHECK(data.train.inputs[1].shape == Shape{1});
  CHECK(std::get<SharedArray<float>>(data.test.inputs[1].values) == std::vector<float>{4});
  CHECK(data.test.target().name.empty());
  CHECK(load_test_data(file, names).inputs.size() == 2);
  CHECK(load_inputs(file, names).inputs[1].name == "price");
  CHECK(load_inputs(file, names).targets.empty());

  const auto refusal = [&](const Members& written) { return message_of<DataError>([&] { (void)load(written); }); };
  Members missing = members;
  missing.erase(missing.begin() + 2);
  CHECK(lacking(refusal(missing), {"any.npz has no array x_train_price", "it has", "x_train_image"}) == "");
  Members surplus = members;
  surplus.emplace_back("x_train_colour.npy", npy(npy_dictionary("|u1", "(2,)"), counting(2)));
  CHECK(lacking(refusal(surplus), {"any.npz:x_train_colour would not be used", "x_train_image, x_train_price"}) == "");
  Members short_one = members;
  short_one[2].second = npy(npy_dictionary("<f4", "(3, 1)"), bytes_of<float>({1, 2, 3}));
  CHECK(lacking(refusal(short_one), {"x_train_image has shape (2, 3)", "x_train_price has shape (3, 1)"}) == "");
  Members other_kind = members;
  other_kind[3].second = npy(npy_dictionary("|u1", "(1, 1)"), {4});
  CHECK(lacking(refusal(other_kind),
                {":x_train_price are floats", ":x_test_price are bytes", "one dtype and one shape"}) == "");

  write_file(directory.path() / "alone.npy", npy(npy_dictionary("<f4", "(2, 1)"), bytes_of<float>({1, 2})));
  CHECK(lacking(message_of<UsageError>([&] { (void)load_inputs(directory.path() / "alone.npy", names); }),
                {"alone.npy", "x_test_image and x_test_price"}) == "");
  write_idx_set(directory.path(), "-", false);
  CHECK(lacking(message_of<UsageError>([&] { (void)load_dataset(directory.path(), names); }),
                {"several inputs", "x_train_image and x_train_price"}) == "");
}
