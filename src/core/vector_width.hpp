// Marks hot loops. The compiler emits a version for each vector width; the program runs the widest that the CPU has.
//
// All versions give the same bits: the build turns off the contraction of products and sums to fused operations
// (-ffp-contract=off), which only the widest version would have, and a loop that reduces does so in lanes of its own.
#pragma once

#include <cstdint>

// Off under sanitizers and clang: one version only.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__) || !defined(__x86_64__)
#define LOCKSTEP_HAS_TARGETS 0
#else
#define LOCKSTEP_HAS_TARGETS 1
#endif

namespace lockstep {

enum class VectorWidth : std::uint8_t { baseline, avx2, avx512 };

/// The widest that this CPU has. A test program may define it instead.
[[nodiscard]] VectorWidth vector_width() noexcept;

#if LOCKSTEP_HAS_TARGETS
namespace target {

template <typename Body>
__attribute__((target("avx512bw"), flatten, noinline)) void avx512(const Body& body) {
  body();
}

template <typename Body>
__attribute__((target("avx2"), flatten, noinline)) void avx2(const Body& body) {
  body();
}

}  // namespace target
#endif

/// Runs `body`, a loop, compiled for the CPU's vector width; with AVX-512 also for its byte and word instructions,
/// which pack results to bfloat16 at once. Capture by value: a store of a byte could change what a reference refers to,
/// so the compiler would read it again in each turn.
template <typename Body>
void run_vectorized(const Body& body) {
#if LOCKSTEP_HAS_TARGETS
  switch (vector_width()) {
    case VectorWidth::avx512: target::avx512(body); return;
    case VectorWidth::avx2: target::avx2(body); return;
    case VectorWidth::baseline: break;
  }
#endif
  body();
}

}  // namespace lockstep
