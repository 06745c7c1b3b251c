// Marks the hot loops: compiled once for each vector width, the machine's own chosen when the program is loaded.
#pragma once

// Sanitizers cannot follow the loader's choice (their run-time is not up yet when it is made).
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
#define LOCKSTEP_VECTORIZED
#else
#define LOCKSTEP_VECTORIZED __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
