// Zip archives with few members, as `.keras` files are.
#pragma once

#include <cstddef>
#include <filesystem>
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

/// An archive of these members, stored as they are. The same members give the same bytes: all have the date 1980-01-01.
[[nodiscard]] std::vector<std::byte> make_zip(std::span<const ZipMember> members);

class ZipReader {
 public:
  /// Throws IoError where the file cannot be read, DataError where it is no archive.
  explicit ZipReader(std::filesystem::path file);

  [[nodiscard]] bool has(const std::string& member) const;

  /// A whole member, whose check sum is right. Throws DataError where there is none, where it is damaged, or claims
  /// more than `most` bytes.
  [[nodiscard]] std::vector<std::byte> read(const std::string& member, std::size_t most) const;

 private:
  struct Discard {
    void operator()(zip* archive) const noexcept;
  };

  [[noreturn]] void fail(const std::string& problem) const;

  std::filesystem::path name_;
  std::unique_ptr<zip, Discard> archive_;
};

}  // namespace lockstep
