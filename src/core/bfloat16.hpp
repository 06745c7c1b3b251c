// The bfloat16 of Lockstep's own kernels: the upper half of a float, rounded to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

struct BFloat16 {
  std::uint16_t bits = 0;

  constexpr BFloat16() noexcept = default;
  // NOLINTNEXTLINE(google-explicit-constructor): converts as built-in numbers do
  constexpr BFloat16(float value) noexcept : bits(round(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr operator float() const noexcept { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U); }

 private:
  static constexpr std::uint16_t round(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (word + 0x7FFFU + ((word >> 16U) & 1U)) >> 16U;
    const bool is_nan = (word & 0x7FFFFFFFU) > 0x7F800000U;
    return static_cast<std::uint16_t>(is_nan ? 0x7FC0U : rounded);
  }
};
static_assert(sizeof(BFloat16) == 2);

}  // namespace lockstep
