// See event_record.hpp. Field numbers are those of TensorBoard's event.proto, summary.proto and tensor.proto.
#include "report/event_record.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

namespace {

/// Castagnoli's polynomial, bits reversed. zlib implements CRC-32 only.
constexpr std::array<std::uint32_t, 256> crc_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
    table[byte] = crc;
  }
  return table;
}();

/// Little-endian bytes of an unsigned number.
template <typename Bits>
std::string fixed(Bits bits) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof bits; ++i) bytes += static_cast<char>((bits >> (8 * i)) & 0xFFU);
  return bytes;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7U) bytes += static_cast<char>((value & 0x7FU) | 0x80U);
  return bytes + static_cast<char>(value);
}

std::string key(std::uint64_t field, std::uint64_t wire_type) { return varint(field << 3U | wire_type); }

std::string integer_field(std::uint64_t field, std::uint64_t value) { return key(field, 0) + varint(value); }

std::string double_field(std::uint64_t field, double value) {
  return key(field, 1) + fixed(std::bit_cast<std::uint64_t>(value));
}

/// A length-delimited field: text, a message, or packed numbers.
std::string bytes_field(std::uint64_t field, std::string_view bytes) {
  return key(field, 2) + varint(bytes.size()) + std::string(bytes);
}

std::string record(std::string_view event) {
  const std::string length = fixed(std::uint64_t{event.size()});
  return length + fixed(masked_crc32c(length)) + std::string(event) + fixed(masked_crc32c(event));
}

}  // namespace

std::uint32_t masked_crc32c(std::string_view bytes) noexcept {
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) crc = (crc >> 8U) ^ crc_table[(crc ^ static_cast<unsigned char>(byte)) & 0xFFU];
  return std::rotr(~crc, 15) + 0xA282EAD8U;
}

std::string version_record(double wall_time) {
  return record(double_field(1, wall_time) + bytes_field(3, "brain.Event:2"));
}

std::string scalar_record(std::string_view tag, double value, std::int64_t step, double wall_time) {
  const std::string plugin = bytes_field(1, "scalars");
  const std::string metadata = bytes_field(1, plugin);
  const std::string number = fixed(std::bit_cast<std::uint32_t>(static_cast<float>(value)));
  const std::string tensor = integer_field(1, 1) + bytes_field(2, "") + bytes_field(5, number);  // float, no dimensions
  const std::string point = bytes_field(1, tag) + bytes_field(9, metadata) + bytes_field(8, tensor);
  const std::string summary = bytes_field(1, point);
  return record(double_field(1, wall_time) + integer_field(2, static_cast<std::uint64_t>(step)) +
                bytes_field(5, summary));
}

}  // namespace lockstep
