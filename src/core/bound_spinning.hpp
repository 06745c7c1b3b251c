// Bounds how long idle threads of OpenMP spin.
#pragma once

namespace lockstep {

/// Restarts this process once with GOMP_SPINCOUNT, which libgomp reads when it is loaded: too late for setenv() in
/// main(). By default, threads that wait for each other spin for milliseconds, and where another process has work for
/// their cores, they spin instead of the threads they wait for. Does nothing if the user chose (GOMP_SPINCOUNT,
/// OMP_WAIT_POLICY) or there is one thread (OMP_NUM_THREADS=1). Returns if the program cannot be restarted: only speed
/// depends on it.
void bound_spinning();

}  // namespace lockstep
