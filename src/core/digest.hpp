// A fast checksum of bytes, to tell by mistake changed ones from equal ones.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace lockstep {

/// Four lanes of multiply and shift, so that the sum runs at memory's speed. Not for adversaries, who can make two
/// things of one digest. Files hold digests, so this function stays as it is.
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
    std::memcpy(&words[1], bytes, std::min<std::size_t>(size, 24));
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

  /// Sixteen hexadecimal digits.
  [[nodiscard]] std::string to_string() const {
    std::uint64_t all = value();
    std::string digits(16, '0');
    for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, all >>= 4U) {
      *digit = "0123456789abcdef"[all & 15U];
    }
    return digits;
  }

 private:
  static constexpr std::uint64_t prime = 0x9E3779B97F4A7C15U;

  /// One to one, and every bit of the argument moves about half of the result's.
  static std::uint64_t scramble(std::uint64_t value) noexcept {
    value = (value ^ (value >> 33U)) * 0xFF51AFD7ED558CCDU;
    value = (value ^ (value >> 33U)) * 0xC4CEB9FE1A85EC53U;
    return value ^ (value >> 33U);
  }

  void mix(const std::array<std::uint64_t, 4>& words) noexcept {
    for (std::size_t i = 0; i < 4; ++i) {
      lanes_[i] = (lanes_[i] ^ words[i]) * prime;
      lanes_[i] ^= lanes_[i] >> 29U;  // the product's upper bits hear of all bits, its lower ones of few
    }
  }

  std::array<std::uint64_t, 4> lanes_{1, 2, 3, 4};
};

}  // namespace lockstep
