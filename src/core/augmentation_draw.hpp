// What augmentation layers draw for an image: a pure function of seed, step, layer and example, so every rank and a
// resumed run draw the same.
#pragma once

#include "core/random.hpp"

#include <cstdint>

namespace lockstep {

/// Two numbers in [0, 1) for one image. `layer` and `example` are as in DropoutMask.
struct AugmentationDraw {
  AugmentationDraw(std::uint64_t seed, std::uint64_t step, std::uint32_t layer, std::uint32_t example) noexcept {
    const std::uint64_t key = stream_key(seed, RandomPurpose::augmentation, step >> 32U);
    const Philox4 words = philox4x32({0, example, layer, static_cast<std::uint32_t>(step)}, key);
    first = to_unit_float(words[0]);
    second = to_unit_float(words[1]);
  }
  float first = 0;   ///< of the height, or the only one
  float second = 0;  ///< of the width
};

}  // namespace lockstep
