// Vectors of 16 channels in GCC's vector extension, which the compiler lowers to the vector registers of the function's
// target. Vectors are passed by reference, because passing them by value has no stable ABI across targets.
#pragma once

#include "core/bfloat16.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::simd {

constexpr int lanes = 16;

using Floats = float __attribute__((vector_size(lanes * sizeof(float))));
using Ints = std::int32_t __attribute__((vector_size(lanes * sizeof(std::int32_t))));
using Words = std::uint32_t __attribute__((vector_size(lanes * sizeof(std::uint32_t))));
using Halves = std::uint16_t __attribute__((vector_size(lanes * sizeof(std::uint16_t))));
using Bytes = std::uint8_t __attribute__((vector_size(lanes)));

#define LOCKSTEP_INLINE inline __attribute__((always_inline))

LOCKSTEP_INLINE void load(const float* from, Floats& to) { std::memcpy(&to, from, sizeof to); }
LOCKSTEP_INLINE void store(const Floats& from, float* to) { std::memcpy(to, &from, sizeof from); }

LOCKSTEP_INLINE void load(const BFloat16* from, Floats& to) {
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  const Words words = __builtin_convertvector(halves, Words) << 16U;
  std::memcpy(&to, &words, sizeof to);
}
/// Rounds to nearest even, as BFloat16 does; a NaN may become infinite or zero.
LOCKSTEP_INLINE void store(const Floats& from, BFloat16* to) {
  Words words;
  std::memcpy(&words, &from, sizeof words);
  const Halves halves = __builtin_convertvector((words + 0x7FFFU + ((words >> 16U) & 1U)) >> 16U, Halves);
  std::memcpy(static_cast<void*>(to), &halves, sizeof halves);
}

// Stores to memory without reading the cache line first, for arrays that exceed the cache: `to` begins a cache line,
// and finish_streaming() comes before another thread reads.
#if defined(__x86_64__)
LOCKSTEP_INLINE void stream(const Floats& from, float* to) {
  __m128 parts[4];
  std::memcpy(parts, &from, sizeof parts);
  for (int i = 0; i < 4; ++i) _mm_stream_ps(to + 4 * std::ptrdiff_t{i}, parts[i]);
}
inline void finish_streaming() { _mm_sfence(); }
#else
LOCKSTEP_INLINE void stream(const Floats& from, float* to) { store(from, to); }
inline void finish_streaming() {}
#endif

// Stores values that are known to be representable, without rounding.
LOCKSTEP_INLINE void store_exact(const Floats& from, float* to) { store(from, to); }
LOCKSTEP_INLINE void store_exact(const Floats& from, BFloat16* to) {
  Words words;
  std::memcpy(&words, &from, sizeof words);
  const Halves halves = __builtin_convertvector(words >> 16U, Halves);
  std::memcpy(static_cast<void*>(to), &halves, sizeof halves);
}

LOCKSTEP_INLINE void load(const std::uint8_t* from, Ints& to) {
  Bytes bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  to = __builtin_convertvector(bytes, Ints);
}
LOCKSTEP_INLINE void store(const Ints& from, std::uint8_t* to) {
  const Bytes bytes = __builtin_convertvector(from, Bytes);
  std::memcpy(to, &bytes, sizeof bytes);
}

}  // namespace lockstep::simd
