// Loads training and test data from files into memory.
#pragma once

#include <lockstep/data/dataset.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct TrainTestSplit {
  Dataset train;
  Dataset test = {};
  std::optional<Dataset> validation = {};  ///< x_val and y_val of an archive that has them
};

/// The names of a model's inputs and outputs, where it has several. The arrays of an archive are called after them:
/// x_train_NAME and y_train_NAME.
struct ArrayNames {
  std::vector<std::string> inputs = {};
  std::vector<std::string> targets = {};
};

/// Whether an archive must have a test set. Without one, TrainTestSplit::test holds no examples.
enum class TestSet { required, optional };

/// Loads the dataset at `path`:
///   - a path that ends in .npz, or a directory with mnist.npz, cifar10.npz or cifar100.npz, with Keras' names for the
///     arrays: x_train, y_train, x_test, y_test, and perhaps x_val, y_val. Inputs are numbers of any type and
///     shape. Targets are class indices if they are one integer per example, otherwise dense;
///   - a directory with {train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz (MNIST, Fashion-MNIST); file names
///     with a dot before idx ("train-images.idx3-ubyte") are accepted too;
///   - a directory with the binary or the Python version of CIFAR-10 or CIFAR-100 (data_batch_1.bin or train.bin,
///     data_batch_1 or train), or with the subdirectory of its archive.
/// Throws DataError for damaged or mismatched files (names file and offset), IoError for missing or unreadable ones,
/// UsageError for a path that does not exist or a directory with several archives.
[[nodiscard]] TrainTestSplit load_dataset(const std::filesystem::path& path, const ArrayNames& names = {},
                                          TestSet test_set = TestSet::required);

/// The files of the dataset at `path` that are there, whether or not they are intact.
[[nodiscard]] std::vector<std::filesystem::path> dataset_files(const std::filesystem::path& path);

/// Loads x_test and y_test, or the files of the test set, and needs no others; of CIFAR, all must be there.
[[nodiscard]] Dataset load_test_data(const std::filesystem::path& path, const ArrayNames& names = {});

/// Loads inputs to predict for: a .npy array, x_test of a .npz archive, or the pictures of the test set. The targets
/// are empty.
[[nodiscard]] Dataset load_inputs(const std::filesystem::path& path, const ArrayNames& names = {});

}  // namespace lockstep
