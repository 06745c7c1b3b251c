// What becomes of an error that a model program does not catch: one sentence, and the exit code it stands for.
#pragma once

namespace lockstep {

/// From now on an exception that leaves main ends all workers: with its message and code if it is one of ours, with 70
/// otherwise. Model programs can then be written without a try. And a file that grows too large is an error, not a
/// signal.
void install_error_handler() noexcept;

}  // namespace lockstep
