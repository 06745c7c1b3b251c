// See multiply_add_row.hpp.
#include "micro/multiply_add_row.hpp"

#include <benchmark/benchmark.h>

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::bench {

namespace {

constexpr int chains = 12;  // a multiply-add takes four cycles, and a core begins two or three in each
constexpr std::int64_t rounds = 1000;

#if defined(__x86_64__)
// The sums are arrays of C, because templates drop the attributes of their elements' type, and begin with different
// values, because the compiler would compute equal ones once.
__attribute__((target("avx512f"))) float run_avx512(float of) {
  __m512 sums[chains];
  for (int i = 0; i < chains; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 factor = _mm512_set1_ps(of);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, factor, factor);
  }
  __m512 total = sums[0];
  for (int i = 1; i < chains; ++i) total = _mm512_add_ps(total, sums[i]);
  return _mm512_cvtss_f32(total);
}

__attribute__((target("avx2,fma"))) float run_avx2(float of) {
  __m256 sums[chains];
  for (int i = 0; i < chains; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 factor = _mm256_set1_ps(of);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, factor, factor);
  }
  __m256 total = sums[0];
  for (int i = 1; i < chains; ++i) total = _mm256_add_ps(total, sums[i]);
  return _mm256_cvtss_f32(total);
}

void run(benchmark::State& state) {
  const bool is_avx512 = __builtin_cpu_supports("avx512f") != 0;
  if (!is_avx512 && __builtin_cpu_supports("fma") == 0) return state.SkipWithError("this CPU has no multiply-adds");
  for (auto unused : state) {
    static_cast<void>(unused);
    float factor = 0.5F;
    benchmark::DoNotOptimize(factor);  // not known before, so that the result is not either
    benchmark::DoNotOptimize(is_avx512 ? run_avx512(factor) : run_avx2(factor));
  }
  const double operations = 2.0 * chains * static_cast<double>(rounds) * (is_avx512 ? 16 : 8);
  state.counters["flops"] =
      benchmark::Counter(operations, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}
#else
void run(benchmark::State& state) { state.SkipWithError("for x86-64 only"); }
#endif

}  // namespace

void add_multiply_add_row() { benchmark::RegisterBenchmark("limit/multiply_adds/f32", run); }

}  // namespace lockstep::bench
