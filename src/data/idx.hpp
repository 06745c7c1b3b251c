// Reads IDX, the format of MNIST's files: a big-endian header with the dimensions, then the bytes. Plain or gzip.
#pragma once

#include <lockstep/core/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// A row-major array of bytes (IDX type 08, which datasets of images and labels use).
struct IdxArray {
  Shape shape;
  std::vector<std::uint8_t> values;
};

/// Parses an IDX file, plain or gzip, in memory. Throws DataError unless the bytes are exactly one array of at most
/// 8 dimensions and 1 GiB; the message gives `name`, the offset, what was found and what was expected.
[[nodiscard]] IdxArray parse_idx(std::span<const std::byte> file, const std::string& name);

/// Reads and parses a file; throws IoError if it cannot be read. gzip is recognized by its first bytes, not by name.
[[nodiscard]] IdxArray read_idx(const std::filesystem::path& path);

}  // namespace lockstep
