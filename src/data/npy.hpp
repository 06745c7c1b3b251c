// NumPy's .npy format: parses its header (element type, shape, offset of the values) and writes float arrays.
#pragma once

#include <lockstep/core/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The supported element types, named as in NumPy's `descr` (all little-endian).
enum class NpyType { u1, i4, i8, f4, f8 };

[[nodiscard]] std::size_t size_of(NpyType type) noexcept;
[[nodiscard]] const char* descr_of(NpyType type) noexcept;

struct NpyHeader {
  NpyType type = NpyType::u1;
  Shape shape;
  std::size_t bytes = 0;    ///< of the header itself, which is the offset of the values
  std::size_t payload = 0;  ///< bytes of the values
};

/// The number of bytes at the start of a .npy file that give the header's length. Every valid file is longer.
inline constexpr std::size_t npy_preamble_bytes = 12;

/// Length of the header that begins with `preamble` (`npy_preamble_bytes` bytes, or all bytes of a shorter file).
/// Throws DataError for an unknown version or an implausible length. `name` is for messages, here and below.
[[nodiscard]] std::size_t npy_header_bytes(std::span<const std::uint8_t> preamble, const std::string& name);

/// Parses a whole header. Throws DataError unless it describes an array in C order, of a supported type, of at most
/// 8 dimensions and 1 GiB; the message gives the offset, what was found and what was expected.
[[nodiscard]] NpyHeader parse_npy_header(std::span<const std::uint8_t> start, const std::string& name);

/// Encodes an array in C order as a .npy file; the values begin at a multiple of 64 bytes.
[[nodiscard]] std::vector<std::byte> to_npy(const Shape& shape, std::span<const float> values);

}  // namespace lockstep
