// IDX, the format of MNIST's files: a big-endian header of the array's extents, then its bytes. Plain or in gzip.
#pragma once

#include <lockstep/core/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// An array of bytes (IDX type 08, the only one that data sets of images and labels use), row-major.
struct IdxArray {
  Shape shape;
  std::vector<std::uint8_t> values;
};

/// Reads an IDX file, plain or gzip, from memory. Believes no byte: throws DataError, with `name`, the offset, what was
/// found and what was expected, unless the bytes are exactly one array of at most 8 extents and 1 GiB.
[[nodiscard]] IdxArray parse_idx(std::span<const std::byte> file, const std::string& name);

/// The same from a file; IoError where it cannot be read. gzip is recognised by its first bytes, not by its name.
[[nodiscard]] IdxArray read_idx(const std::filesystem::path& path);

}  // namespace lockstep
