// Ctrl-C in a process without a launcher. While a model trains, the first SIGINT, SIGTERM or SIGUSR1 asks to stop after
// the step, with a backup, and a second one of the same kind ends the process at once (mpirun sends SIGTERM after
// SIGINT). Outside training any of them ends the process. The exit code is 75.
#pragma once

namespace lockstep {

/// From now on, SIGUSR1, by which mpirun passes Ctrl-C on, ends the process with exit code 75 outside of training.
/// Without this it would be reported as a crash. A signal that is ignored stays ignored. `says_so`: as below.
void end_on_request(bool says_so) noexcept;

/// Between these calls, which may nest, signals are requests. A signal that is ignored stays ignored. `says_so`: this
/// process, the chief's, tells the user what happens.
void begin_interruptible(bool says_so);
void end_interruptible() noexcept;

/// Whether a signal has come since the first begin_interruptible().
[[nodiscard]] bool is_interrupted() noexcept;

}  // namespace lockstep
