// The init process of a container: process 1 must reap orphans, and ignores every signal that it does not handle.
#pragma once

namespace lockstep {

/// If this is process 1, forks and returns in the child only; the parent stays behind as init, which forwards signals,
/// reaps orphans and exits with the child's code. Otherwise does nothing. The process must have no threads.
void run_init_if_pid_1();

}  // namespace lockstep
