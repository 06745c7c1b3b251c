// See rounding.hpp. A word at a time in integers, which the compiler turns into vectors for whatever there is.
#include "collective/rounding.hpp"

#include <cstddef>

// Sanitizers cannot follow the loader's choice (their run-time is not up yet when it is made).
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
#define LOCKSTEP_WIDE
#else
#define LOCKSTEP_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

namespace lockstep {

LOCKSTEP_WIDE void round_to_bfloat16(const float* __restrict values, BFloat16* __restrict rounded,
                                     std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) rounded[i] = values[i];
}

LOCKSTEP_WIDE void widen(const BFloat16* __restrict rounded, float* __restrict values, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) values[i] = rounded[i];
}

}  // namespace lockstep
