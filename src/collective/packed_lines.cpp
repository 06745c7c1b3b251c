// See packed_lines.hpp.
#include "collective/packed_lines.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>

namespace lockstep {

namespace {

constexpr std::size_t bits = 8;  // in a byte

std::size_t divided_up(std::size_t number, std::size_t by) noexcept { return (number + by - 1) / by; }

std::size_t bitmap_bytes(std::size_t bytes, std::size_t line_bytes) noexcept {
  return divided_up(divided_up(bytes, line_bytes), bits);
}

bool is_zero(std::span<const std::byte> line) noexcept {
  std::byte any{0};
  for (const std::byte byte : line) any |= byte;
  return any == std::byte{0};
}

[[noreturn]] void refuse(std::size_t packed, std::size_t bytes) {
  throw InternalError(
      fmt::format("another host sent {} bytes, which are not {} bytes of packed gradients", packed, bytes));
}

}  // namespace

std::size_t max_packed_bytes(std::size_t bytes, std::size_t line_bytes) noexcept {
  return bitmap_bytes(bytes, line_bytes) + bytes;
}

std::size_t pack_lines(std::span<const std::byte> values, std::size_t line_bytes, std::byte* packed) noexcept {
  std::byte* const bitmap = packed;
  std::byte* end = std::fill_n(packed, bitmap_bytes(values.size(), line_bytes), std::byte{0});
  for (std::size_t at = 0; at < values.size(); at += line_bytes) {
    const auto line = values.subspan(at, std::min(line_bytes, values.size() - at));
    if (is_zero(line)) continue;
    const std::size_t number = at / line_bytes;
    bitmap[number / bits] |= std::byte{1} << (number % bits);
    end = std::ranges::copy(line, end).out;
  }
  return static_cast<std::size_t>(end - packed);
}

void unpack_lines(std::span<const std::byte> packed, std::size_t line_bytes, std::span<std::byte> values) {
  const std::size_t lines_begin = bitmap_bytes(values.size(), line_bytes);
  if (packed.size() < lines_begin) refuse(packed.size(), values.size());
  auto rest = packed.subspan(lines_begin);
  for (std::size_t at = 0; at < values.size(); at += line_bytes) {
    const auto line = values.subspan(at, std::min(line_bytes, values.size() - at));
    const std::size_t number = at / line_bytes;
    if ((packed[number / bits] & (std::byte{1} << (number % bits))) == std::byte{0}) {
      std::ranges::fill(line, std::byte{0});
      continue;
    }
    if (rest.size() < line.size()) refuse(packed.size(), values.size());
    std::ranges::copy(rest.first(line.size()), line.begin());
    rest = rest.subspan(line.size());
  }
  if (!rest.empty()) refuse(packed.size(), values.size());
}

}  // namespace lockstep
