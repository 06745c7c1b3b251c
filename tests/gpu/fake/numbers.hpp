// Access to elements of device memory as floats; the elements are float or bfloat16.
#pragma once

#include "core/bfloat16.hpp"

#include <cstddef>

namespace fake_gpu {

[[nodiscard]] inline std::size_t size_of(bool bfloat16) { return bfloat16 ? 2 : 4; }

[[nodiscard]] inline float number(const void* memory, bool bfloat16, std::size_t at) {
  return bfloat16 ? float{static_cast<const lockstep::BFloat16*>(memory)[at]} : static_cast<const float*>(memory)[at];
}

inline void set_number(void* memory, bool bfloat16, std::size_t at, float value) {
  if (bfloat16) {
    static_cast<lockstep::BFloat16*>(memory)[at] = value;
  } else {
    static_cast<float*>(memory)[at] = value;
  }
}

}  // namespace fake_gpu
