// See bfloat16_compression.hpp. The compiler vectorizes these loops for each instruction set.
#include "collective/bfloat16_compression.hpp"

#include <cstddef>

#include "core/vector_width.hpp"

namespace lockstep {

void to_bfloat16(const float* __restrict values, BFloat16* __restrict rounded, std::size_t count) noexcept {
  run_vectorized([=] {
    for (std::size_t i = 0; i < count; ++i) rounded[i] = values[i];
  });
}

void from_bfloat16(const BFloat16* __restrict rounded, float* __restrict values, std::size_t count) noexcept {
  run_vectorized([=] {
    for (std::size_t i = 0; i < count; ++i) values[i] = rounded[i];
  });
}

}  // namespace lockstep
