// Normal noise for elements of tensors: a pure function of seed, step, layer, example and element, so every rank and a
// resumed run draw the same.
#pragma once

#include "core/random.hpp"

#include <cmath>
#include <cstdint>

namespace lockstep {

/// The noise of one layer in one step. An element is identified as in DropoutMask.
class GaussianNoiseSource {
 public:
  GaussianNoiseSource(std::uint64_t seed, std::uint64_t step, std::uint32_t layer) noexcept
      : key_(stream_key(seed, RandomPurpose::noise, step >> 32U)),
        layer_(layer),
        step_(static_cast<std::uint32_t>(step)) {}

  /// A standard normal number (Box-Muller transform).
  [[nodiscard]] float normal(std::uint32_t example, std::uint32_t element) const noexcept {
    constexpr float two_pi = 6.28318530717958648F;
    const Philox4 words = philox4x32({element, example, layer_, step_}, key_);
    return std::sqrt(-2.0F * std::log(1.0F - to_unit_float(words[0]))) * std::cos(two_pi * to_unit_float(words[1]));
  }

 private:
  std::uint64_t key_;
  std::uint32_t layer_;
  std::uint32_t step_;
};

}  // namespace lockstep
