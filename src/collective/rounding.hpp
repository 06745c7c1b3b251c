// Gradients as bfloat16 and back: what two hosts send each other takes half the bytes. A word that was rounded to
// nearest even is the same on every processor.
#pragma once

#include <cstddef>

#include "core/bfloat16.hpp"

namespace lockstep {

/// The arrays do not overlap.
void round_to_bfloat16(const float* values, BFloat16* rounded, std::size_t count) noexcept;

void widen(const BFloat16* rounded, float* values, std::size_t count) noexcept;

}  // namespace lockstep
