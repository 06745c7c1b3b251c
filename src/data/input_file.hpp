// A file that is read from its beginning to its end, with its size known first: sizes are checked before bytes are
// read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Data files, and arrays within packed ones, are at most this large: what claims more is refused, not allocated.
inline constexpr std::uint64_t max_data_bytes = std::uint64_t{1} << 30U;

class InputFile {
 public:
  /// Throws IoError unless `path` is a regular file that can be opened.
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  /// Fills `out` with the next bytes. Throws IoError where the file ends before or cannot be read.
  void read(std::span<std::uint8_t> out);

 private:
  std::string name_;
  std::uint64_t size_ = 0;
  int descriptor_ = -1;
};

/// All bytes of a file of at most `max_data_bytes`; DataError if it is larger.
[[nodiscard]] std::vector<std::uint8_t> read_whole_file(const std::filesystem::path& path);

}  // namespace lockstep
