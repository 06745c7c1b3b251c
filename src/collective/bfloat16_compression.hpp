// Converts gradients to bfloat16 and back, which halves the traffic between hosts. Rounding to nearest even gives equal
// bits on every processor.
#pragma once

#include <cstddef>

#include "core/bfloat16.hpp"

namespace lockstep {

/// The arrays do not overlap.
void to_bfloat16(const float* values, BFloat16* rounded, std::size_t count) noexcept;

void from_bfloat16(const BFloat16* rounded, float* values, std::size_t count) noexcept;

}  // namespace lockstep
