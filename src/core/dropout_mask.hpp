// Which elements Dropout keeps: a pure function of what an element is, so that any rank, thread or backend that
// computes it decides alike, and a resumed run as the run it resumes.
#pragma once

#include "core/random.hpp"

#include <array>
#include <cstdint>

namespace lockstep {

/// The decisions of one Dropout layer in one step. An element is named by its example's place in the global batch and
/// its index within the example, row-major in Keras' order (height, width, channels).
class DropoutMask {
 public:
  /// `layer` is the layer's place in Sequential::layers(), `step` counts all steps of the job from 0.
  /// 0 <= rate < 1.
  constexpr DropoutMask(std::uint64_t seed, std::uint64_t step, std::uint32_t layer, float rate) noexcept
      : key_(mix(seed, step >> 32U)),
        layer_(layer),
        step_(static_cast<std::uint32_t>(step)),
        threshold_(round_up(rate * 0x1.0p24F)),
        scale_(1.0F / (1.0F - rate)) {}

  /// The decisions for elements 4 quad ... 4 quad + 3: keep where to_unit_float(word) >= rate, asked in integers.
  [[nodiscard]] constexpr std::array<bool, 4> keep_four(std::uint32_t place, std::uint32_t quad) const noexcept {
    const Philox4 words = philox4x32({quad, place, layer_, step_}, key_);
    return {kept(words[0]), kept(words[1]), kept(words[2]), kept(words[3])};
  }

  [[nodiscard]] constexpr bool keep(std::uint32_t place, std::uint32_t element) const noexcept {
    return keep_four(place, element / 4)[element % 4];
  }

  /// keep_four as the factors the elements are multiplied with: 0 or scale().
  [[nodiscard]] constexpr std::array<float, 4> factors_four(std::uint32_t place, std::uint32_t quad) const noexcept {
    const std::array<bool, 4> keep = keep_four(place, quad);
    return {keep[0] ? scale_ : 0.0F, keep[1] ? scale_ : 0.0F, keep[2] ? scale_ : 0.0F, keep[3] ? scale_ : 0.0F};
  }

  /// 1 / (1 - rate), what the kept ones are multiplied with.
  [[nodiscard]] constexpr float scale() const noexcept { return scale_; }

 private:
  /// Seed, purpose and the step's high bits in one word (the finalizer of G. Steele et al.'s SplitMix, 2014): the other
  /// streams take the seed itself for their key.
  [[nodiscard]] static constexpr std::uint64_t mix(std::uint64_t seed, std::uint64_t step_high) noexcept {
    std::uint64_t key =
        seed + 0x9E3779B97F4A7C15U * (static_cast<std::uint64_t>(RandomPurpose::dropout) << 32U | step_high);
    key = (key ^ (key >> 30U)) * 0xBF58476D1CE4E5B9U;
    key = (key ^ (key >> 27U)) * 0x94D049BB133111EBU;
    return key ^ (key >> 31U);
  }

  [[nodiscard]] static constexpr std::uint32_t round_up(float number) noexcept {
    const auto whole = static_cast<std::uint32_t>(number);
    return whole + (static_cast<float>(whole) < number ? 1 : 0);
  }

  [[nodiscard]] constexpr bool kept(std::uint32_t word) const noexcept { return (word >> 8U) >= threshold_; }

  std::uint64_t key_;
  std::uint32_t layer_;
  std::uint32_t step_;
  std::uint32_t threshold_;
  float scale_;
};

}  // namespace lockstep
