// The header of NumPy's .npy format: which numbers an array holds, its extents, and where its values begin.
#pragma once

#include <lockstep/core/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The element types that data sets come in, named as NumPy's descr names them (all little-endian).
enum class NpyType { u1, i4, i8, f4, f8 };

[[nodiscard]] std::size_t size_of(NpyType type) noexcept;
[[nodiscard]] const char* descr_of(NpyType type) noexcept;

struct NpyHeader {
  NpyType type = NpyType::u1;
  Shape shape;
  std::size_t bytes = 0;    ///< of the header itself: where the values begin
  std::size_t payload = 0;  ///< bytes of the values
};

/// Every .npy file begins with more bytes than these, and they tell the header's length.
inline constexpr std::size_t npy_prelude_bytes = 12;

/// Length of the header that begins with `prelude` (`npy_prelude_bytes` bytes, or all there is). Throws DataError
/// unless it is one of a version that is known and of a sensible length. `name` is for messages, here and below.
[[nodiscard]] std::size_t npy_header_bytes(std::span<const std::uint8_t> prelude, const std::string& name);

/// Reads a whole header. Throws DataError, with the offset, what was found and what was expected, unless it describes
/// an array in C order, of a type above, of at most 8 extents and 1 GiB.
[[nodiscard]] NpyHeader parse_npy_header(std::span<const std::uint8_t> start, const std::string& name);

/// A whole .npy file of an array in C order, as numpy.load reads it; its values begin at a multiple of 64.
[[nodiscard]] std::vector<std::byte> npy_of(const Shape& shape, std::span<const float> values);

}  // namespace lockstep
