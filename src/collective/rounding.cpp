// See rounding.hpp. A word at a time in integers, which the compiler turns into vectors for whatever there is.
#include "collective/rounding.hpp"

#include <cstddef>

#include "core/vectorized.hpp"

namespace lockstep {

LOCKSTEP_VECTORIZED void round_to_bfloat16(const float* __restrict values, BFloat16* __restrict rounded,
                                           std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) rounded[i] = values[i];
}

LOCKSTEP_VECTORIZED void widen(const BFloat16* __restrict rounded, float* __restrict values,
                               std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) values[i] = rounded[i];
}

}  // namespace lockstep
