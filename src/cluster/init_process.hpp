// Process 1 of a container has duties: it must reap orphans, and no signal ends it that it does not handle.
#pragma once

namespace lockstep {

/// Returns at once, but in process 1, which then only does its duties for the child that returns from here: it passes
/// signals on, reaps whoever has ended, and ends with the child's exit code. For processes without threads.
void run_as_child_of_process_1();

}  // namespace lockstep
