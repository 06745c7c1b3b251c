// Reads and writes small zip archives, such as `.keras` files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct zip;  // libzip's

namespace lockstep {

struct ZipMember {
  std::string name;
  std::span<const std::byte> bytes;
};

/// Writes bytes at an offset of a file: mostly at its end, sometimes over what is there.
using WriteAt = std::function<void(std::size_t offset, std::span<const std::byte> bytes)>;

/// Writes an archive of these members, uncompressed and without a copy of it in memory. Equal members give equal bytes:
/// all have the date 1980-01-01.
void write_zip(std::span<const ZipMember> members, const WriteAt& write);

/// The bytes of such an archive.
[[nodiscard]] std::vector<std::byte> make_zip(std::span<const ZipMember> members);

class ZipReader {
 public:
  /// Throws IoError if the file cannot be read, DataError if it is not a zip archive or has two members of one name.
  explicit ZipReader(std::filesystem::path file);

  [[nodiscard]] bool has(const std::string& member) const;

  /// Reads a whole member and verifies its checksum. Throws DataError if the member is missing, damaged, or larger than
  /// `max_bytes`.
  [[nodiscard]] std::vector<std::byte> read(const std::string& member, std::size_t max_bytes) const;

 private:
  struct Discard {
    void operator()(zip* archive) const noexcept;
  };

  /// Python reads the last of several members of one name, libzip the first.
  void require_unique_members() const;
  [[noreturn]] void fail(const std::string& problem) const;

  std::filesystem::path name_;
  std::unique_ptr<zip, Discard> archive_;
};

}  // namespace lockstep
