// Packs values that are mostly zero, such as the gradient of an Embedding: lines of zeros do not travel.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep {

inline constexpr std::size_t elements_per_line = 16;

/// The most bytes that pack_lines() writes for so many bytes.
[[nodiscard]] std::size_t max_packed_bytes(std::size_t bytes, std::size_t line_bytes) noexcept;

/// Writes a bit for each line, and then the lines that are not zero. The last line may be short. Negative zeros count
/// as values, so nothing is rounded. Returns the number of bytes written, at most max_packed_bytes().
std::size_t pack_lines(std::span<const std::byte> values, std::size_t line_bytes, std::byte* packed) noexcept;

/// Overwrites `values` with what was packed. Throws InternalError unless pack_lines() has packed as many bytes.
void unpack_lines(std::span<const std::byte> packed, std::size_t line_bytes, std::span<std::byte> values);

}  // namespace lockstep
