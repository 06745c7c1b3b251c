// Reads CIFAR-10 and CIFAR-100 (https://www.cs.toronto.edu/~kriz/cifar.html), whose images are stored channel by
// channel: the binary version, records of one or two labels and an image, and the Python version, a pickle of an array
// of images and lists of labels.
#pragma once

#include <lockstep/data/dataset.hpp>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct CifarFiles {
  std::vector<std::filesystem::path> train = {};
  std::vector<std::filesystem::path> test = {};
  bool is_pickled = false;      ///< the Python version
  std::size_t labels = 1;       ///< of a record, one byte each, the class last: CIFAR-100 has the superclass before it
  std::string labels_key = {};  ///< of the Python version's classes
};

/// The files in `directory`, or in its subdirectory with the archive's name; none if there are no such files. Throws
/// IoError if some of them are missing.
[[nodiscard]] std::optional<CifarFiles> find_cifar(const std::filesystem::path& directory);

/// Pictures of 32 x 32 x 3 bytes. Throws DataError for a damaged file.
[[nodiscard]] Dataset read_cifar_train(const CifarFiles& files);
[[nodiscard]] Dataset read_cifar_test(const CifarFiles& files);

}  // namespace lockstep
