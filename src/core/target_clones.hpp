// Marks hot loops. The compiler emits a version for each vector width; the program runs the widest that the CPU has.
#pragma once

// Off under sanitizers: the loader picks a version before their run-time is initialized, which they do not support.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
#define LOCKSTEP_TARGET_CLONES
#define LOCKSTEP_HAS_TARGETS 0
#else
/// For functions. g++ ignores it on templates: see run_vectorized.
#define LOCKSTEP_TARGET_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#define LOCKSTEP_HAS_TARGETS 1
#endif

namespace lockstep {

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

/// Runs `body`, a loop, as LOCKSTEP_TARGET_CLONES would. Unlike the attribute, this works in templates, and uses the byte
/// and word instructions of AVX-512, which pack results to bfloat16 at once.
template <typename Body>
void run_vectorized(const Body& body) {
#if LOCKSTEP_HAS_TARGETS
  if (__builtin_cpu_supports("avx512bw") != 0) {
    target::avx512(body);
    return;
  }
  if (__builtin_cpu_supports("avx2") != 0) {
    target::avx2(body);
    return;
  }
#endif
  body();
}

}  // namespace lockstep
