// See bfloat16_compression.hpp. The compiler vectorizes these loops for each instruction set.
#include "collective/bfloat16_compression.hpp"

#include <cstddef>

#include "core/target_clones.hpp"

namespace lockstep {

LOCKSTEP_TARGET_CLONES void to_bfloat16(const float* __restrict values, BFloat16* __restrict rounded,
                                        std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) rounded[i] = values[i];
}

LOCKSTEP_TARGET_CLONES void from_bfloat16(const BFloat16* __restrict rounded, float* __restrict values,
                                          std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) values[i] = rounded[i];
}

}  // namespace lockstep
