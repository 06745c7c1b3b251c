// Which elements Dropout keeps: a pure function of seed, step, layer, example and element. Every rank, thread and
// backend makes the same decision, and so does a resumed run.
#pragma once

#include "core/random.hpp"

#include <array>
#include <cstdint>

namespace lockstep {

/// The mask of one Dropout layer in one step. An element is identified by its example's index in the global batch
/// (`example`) and its row-major index within the example, in Keras' order (height, width, channels).
class DropoutMask {
 public:
  /// `layer` is the layer's index in Architecture::layers(). `step` counts all steps of the job from 0.
  /// Requires 0 <= rate < 1.
  constexpr DropoutMask(std::uint64_t seed, std::uint64_t step, std::uint32_t layer, float rate) noexcept
      : key_(stream_key(seed, RandomPurpose::dropout, step >> 32U)),
        layer_(layer),
        step_(static_cast<std::uint32_t>(step)),
        threshold_(round_up(rate * 0x1.0p24F)),
        scale_(1.0F / (1.0F - rate)) {}

  /// Decides for elements 4 * quad to 4 * quad + 3. An element is kept if to_unit_float(word) >= rate; the code
  /// compares integers, which gives the same decision.
  [[nodiscard]] constexpr std::array<bool, 4> keep_four(std::uint32_t example, std::uint32_t quad) const noexcept {
    const Philox4 words = philox4x32({quad, example, layer_, step_}, key_);
    return {is_kept(words[0]), is_kept(words[1]), is_kept(words[2]), is_kept(words[3])};
  }

  [[nodiscard]] constexpr bool keep(std::uint32_t example, std::uint32_t element) const noexcept {
    return keep_four(example, element / 4)[element % 4];
  }

  /// keep_four() as factors for the elements: 0 or scale().
  [[nodiscard]] constexpr std::array<float, 4> factors_four(std::uint32_t example, std::uint32_t quad) const noexcept {
    const std::array<bool, 4> keep = keep_four(example, quad);
    return {keep[0] ? scale_ : 0.0F, keep[1] ? scale_ : 0.0F, keep[2] ? scale_ : 0.0F, keep[3] ? scale_ : 0.0F};
  }

  /// 1 / (1 - rate), the factor of kept elements.
  [[nodiscard]] constexpr float scale() const noexcept { return scale_; }

 private:
  [[nodiscard]] static constexpr std::uint32_t round_up(float number) noexcept {
    const auto whole = static_cast<std::uint32_t>(number);
    return whole + (static_cast<float>(whole) < number ? 1 : 0);
  }

  [[nodiscard]] constexpr bool is_kept(std::uint32_t word) const noexcept { return (word >> 8U) >= threshold_; }

  std::uint64_t key_;
  std::uint32_t layer_;
  std::uint32_t step_;
  std::uint32_t threshold_;
  float scale_;
};

}  // namespace lockstep
