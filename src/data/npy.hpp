// NumPy's .npy format: parses its header (element type, shape, offset of the values) and writes float arrays.
#pragma once

#include <lockstep/core/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The supported element types, named as in NumPy's `descr`.
enum class NpyType { b1, i1, u1, i2, u2, i4, u4, i8, u8, f2, f4, f8 };

[[nodiscard]] constexpr bool is_integer(NpyType type) noexcept { return type < NpyType::f2; }

[[nodiscard]] std::size_t size_of(NpyType type) noexcept;
[[nodiscard]] const char* descr_of(NpyType type) noexcept;

struct NpyHeader {
  NpyType type = NpyType::u1;
  Shape shape;
  std::size_t bytes = 0;    ///< of the header itself, which is the offset of the values
  std::size_t payload = 0;  ///< bytes of the values
  bool is_big_endian = false;
  bool is_fortran_order = false;
};

/// The values of an array as bytes.
struct NpyArray {
  NpyType type = NpyType::u1;
  Shape shape;
  std::vector<std::uint8_t> bytes;  ///< row-major and little-endian
};

/// Brings the values that a header describes into C order and little-endian.
[[nodiscard]] NpyArray to_array(const NpyHeader& header, std::vector<std::uint8_t> bytes);

/// The values as floats. Booleans are 0 and 1.
[[nodiscard]] std::vector<float> to_floats(const NpyArray& array);

/// The values of integers.
[[nodiscard]] std::vector<std::int64_t> to_integers(const NpyArray& array);

/// The number of bytes at the start of a .npy file that give the header's length. Every valid file is longer.
inline constexpr std::size_t npy_preamble_bytes = 12;

/// Length of the header that begins with `preamble` (`npy_preamble_bytes` bytes, or all bytes of a shorter file).
/// Throws DataError for an unknown version or an implausible length. `name` is for messages, here and below.
[[nodiscard]] std::size_t npy_header_bytes(std::span<const std::uint8_t> preamble, const std::string& name);

/// Parses a whole header. Throws DataError unless it describes an array of a supported type, of at most 8 dimensions
/// and `max_file_bytes`; the message gives the offset, what was found and what was expected.
[[nodiscard]] NpyHeader parse_npy_header(std::span<const std::uint8_t> start, const std::string& name);

/// Encodes an array in C order as a .npy file; the values begin at a multiple of 64 bytes.
[[nodiscard]] std::vector<std::byte> to_npy(const Shape& shape, std::span<const float> values);

}  // namespace lockstep
