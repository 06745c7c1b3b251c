// Digests of bytes, and their hexadecimal form. They detect accidental corruption and are not cryptographic.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace lockstep {

/// Formats a number as sixteen lower-case hexadecimal digits.
[[nodiscard]] std::string to_hex(std::uint64_t value);

/// 64-bit FNV-1a, for short inputs. Plans and backups hold these digests, so the function must not change.
constexpr std::uint64_t fnv1a_basis = 0xCBF29CE484222325U;

/// Adds one value (a byte in the original definition) to an FNV-1a digest.
[[nodiscard]] constexpr std::uint64_t fnv1a(std::uint64_t digest, std::uint64_t value) noexcept {
  return (digest ^ value) * 0x100000001B3U;
}

[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view text) noexcept {
  std::uint64_t digest = fnv1a_basis;
  for (const char c : text) digest = fnv1a(digest, static_cast<unsigned char>(c));
  return digest;
}

/// A digest for large arrays: four independent multiply-and-shift lanes run at memory bandwidth. Files hold these
/// digests, so the function must not change.
class Digest {
 public:
  void add(const void* data, std::size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    std::array<std::uint64_t, 4> words{};
    for (; size >= sizeof words; bytes += sizeof words, size -= sizeof words) {
      std::memcpy(words.data(), bytes, sizeof words);
      mix(words);
    }
    words = {size, 0, 0, 0};
    if (size > 0) std::memcpy(&words[1], bytes, std::min<std::size_t>(size, 24));  // empty data may be null
    mix(words);
    if (size > 24) {
      words = {};
      std::memcpy(words.data(), bytes + 24, size - 24);
      mix(words);
    }
  }

  [[nodiscard]] std::uint64_t value() const noexcept {
    std::uint64_t all = 0;
    for (const std::uint64_t lane : lanes_) all = scramble(scramble(all) + scramble(lane));
    return all;
  }

  /// The value as sixteen hexadecimal digits.
  [[nodiscard]] std::string to_string() const { return to_hex(value()); }

 private:
  static constexpr std::uint64_t prime = 0x9E3779B97F4A7C15U;

  /// A bijection in which every bit of the argument affects about half of the result's bits (MurmurHash3's finalizer).
  static std::uint64_t scramble(std::uint64_t value) noexcept {
    value = (value ^ (value >> 33U)) * 0xFF51AFD7ED558CCDU;
    value = (value ^ (value >> 33U)) * 0xC4CEB9FE1A85EC53U;
    return value ^ (value >> 33U);
  }

  void mix(const std::array<std::uint64_t, 4>& words) noexcept {
    for (std::size_t i = 0; i < 4; ++i) {
      lanes_[i] = (lanes_[i] ^ words[i]) * prime;
      lanes_[i] ^= lanes_[i] >> 29U;  // the product's upper bits depend on all bits, its lower bits on few
    }
  }

  std::array<std::uint64_t, 4> lanes_{1, 2, 3, 4};
};

}  // namespace lockstep
