// Reads a file from beginning to end. Its size is known from the start, so that readers can check declared sizes
// against it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// No file and no array of NumPy is larger: a header that declares more is damaged. What a header declares is compared
/// with the size of its file as well, before memory is allocated.
inline constexpr std::uint64_t max_file_bytes = std::uint64_t{1} << 40U;

/// Bytes of the largest IDX array, which may be compressed by any factor.
inline constexpr std::uint64_t max_data_bytes = std::uint64_t{1} << 30U;

class SequentialFile {
 public:
  /// Throws IoError unless `path` is a regular file that can be opened.
  explicit SequentialFile(const std::filesystem::path& path);
  ~SequentialFile();
  SequentialFile(const SequentialFile&) = delete;
  SequentialFile& operator=(const SequentialFile&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  /// Fills `out` with the next bytes. Throws IoError if the file ends early or cannot be read.
  void read(std::span<std::uint8_t> out);

 private:
  std::string name_;
  std::uint64_t size_ = 0;
  int descriptor_ = -1;
};

/// Reads a whole file. Throws DataError if it is larger than `max_file_bytes`, IoError if it cannot be read.
[[nodiscard]] std::vector<std::uint8_t> read_whole_file(const std::filesystem::path& path);

}  // namespace lockstep
