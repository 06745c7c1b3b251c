// The only source of random numbers that a result depends on: a counter-based generator, so that a random number
// depends on its purpose and not on which rank draws it or when. Philox4x32-10 (J. Salmon et al., "Parallel Random
// Numbers: As Easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace lockstep {

/// What random numbers are for. The purpose is part of the counter, so streams of different purposes never overlap.
enum class RandomPurpose : std::uint32_t {
  initializer = 1,
  shuffle = 2,
  dropout = 3,
  digits = 4,
  test = 5,
  calibration = 6,
  noise = 7,
  pictures = 8,
  augmentation = 9
};

using Philox4 = std::array<std::uint32_t, 4>;

/// Ten rounds of Philox4x32 over `counter` with the 64-bit `key`: a pure function that returns four independent words.
[[nodiscard]] constexpr Philox4 philox4x32(Philox4 counter, std::uint64_t key) noexcept {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32U);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32U) ^ counter[1] ^ k0, static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32U) ^ counter[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return counter;
}

/// Maps the upper 24 bits of a word to a float in [0, 1).
[[nodiscard]] constexpr float to_unit_float(std::uint32_t word) noexcept {
  return static_cast<float>(word >> 8U) * 0x1.0p-24F;
}

/// A key for draws that are identified by all four words of the counter. Hashes seed, purpose and whatever else does
/// not fit in the counter with the finalizer of SplitMix (G. Steele et al., 2014). The streams below use the seed
/// itself as their key, so they never share this one.
[[nodiscard]] constexpr std::uint64_t stream_key(std::uint64_t seed, RandomPurpose purpose,
                                                 std::uint64_t more) noexcept {
  std::uint64_t key = seed + 0x9E3779B97F4A7C15U * (static_cast<std::uint64_t>(purpose) << 32U | more);
  key = (key ^ (key >> 30U)) * 0xBF58476D1CE4E5B9U;
  key = (key ^ (key >> 27U)) * 0x94D049BB133111EBU;
  return key ^ (key >> 31U);
}

/// A sequence of random numbers for one purpose and one subject (the index of a parameter, a pass or an image).
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, RandomPurpose purpose, std::uint64_t subject) noexcept
      : key_(seed),
        counter_{0, static_cast<std::uint32_t>(purpose), static_cast<std::uint32_t>(subject),
                 static_cast<std::uint32_t>(subject >> 32U)} {}

  [[nodiscard]] std::uint32_t next() noexcept {
    if (remaining_ == 0) {
      words_ = philox4x32(counter_, key_);
      ++counter_[0];
      remaining_ = 4;
    }
    return words_[4 - remaining_--];
  }

  [[nodiscard]] float uniform() noexcept { return to_unit_float(next()); }

  /// An unbiased integer in [0, bound); bound > 0 (D. Lemire, "Fast Random Integer Generation", 2019).
  [[nodiscard]] std::uint32_t below(std::uint32_t bound) noexcept {
    std::uint64_t product = std::uint64_t{next()} * bound;
    if (static_cast<std::uint32_t>(product) < bound) {
      const std::uint32_t threshold = (0U - bound) % bound;
      while (static_cast<std::uint32_t>(product) < threshold) product = std::uint64_t{next()} * bound;
    }
    return static_cast<std::uint32_t>(product >> 32U);
  }

  /// A standard normal number (Box-Muller transform).
  [[nodiscard]] float normal() noexcept;

 private:
  std::uint64_t key_;
  Philox4 counter_;
  Philox4 words_{};
  int remaining_ = 0;
};

}  // namespace lockstep
