// Reads the binary version of CIFAR-10 and CIFAR-100 (https://www.cs.toronto.edu/~kriz/cifar.html): records of
// one or two labels and an image, stored channel by channel.
#pragma once

#include <lockstep/data/dataset.hpp>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <vector>

namespace lockstep {

struct CifarFiles {
  std::vector<std::filesystem::path> train;
  std::vector<std::filesystem::path> test;
  std::size_t labels = 1;  ///< of a record, one byte each, the class last: CIFAR-100 has the superclass before it
};

/// The files in `directory`, or in its subdirectory with the archive's name; none if there are no such files. Throws
/// IoError if some of them are missing, DataError if the directory has only the Python version.
[[nodiscard]] std::optional<CifarFiles> find_cifar(const std::filesystem::path& directory);

/// Pictures of 32 x 32 x 3 bytes. Throws DataError unless each file consists of whole records.
[[nodiscard]] Dataset read_cifar(const std::vector<std::filesystem::path>& files, std::size_t labels);

}  // namespace lockstep
