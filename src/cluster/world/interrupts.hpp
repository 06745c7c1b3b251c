// Ctrl-C while a model trains in a process without a launcher: the first SIGINT, SIGTERM or SIGUSR1 asks to stop after
// the step, with a backup. The second one ends the process at once.
#pragma once

namespace lockstep {

/// Between these calls, which may nest, signals are requests. A signal that is ignored stays ignored. `says_so`: this
/// process, the chief's, tells the user what happens.
void begin_interruptible(bool says_so);
void end_interruptible() noexcept;

/// Whether a signal has come since the first begin_interruptible().
[[nodiscard]] bool is_interrupted() noexcept;

}  // namespace lockstep
