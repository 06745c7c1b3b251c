// See vector_width.hpp.
#include "core/vector_width.hpp"

namespace lockstep {

// Weak, so that a test can define it.
__attribute__((weak)) VectorWidth vector_width() noexcept {
#if LOCKSTEP_HAS_TARGETS
  if (__builtin_cpu_supports("avx512bw") != 0) return VectorWidth::avx512;
  if (__builtin_cpu_supports("avx2") != 0) return VectorWidth::avx2;
#endif
  return VectorWidth::baseline;
}

}  // namespace lockstep
