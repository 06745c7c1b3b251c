// Turns an exception that a model program does not catch into a one-sentence message and an exit code.
#pragma once

namespace lockstep {

/// From now on an exception that escapes main ends all workers: a lockstep::Error with its message and exit code, any
/// other with 70. Model programs need no try. Exceeding the file size limit becomes a write error instead of SIGXFSZ.
void install_error_handler() noexcept;

}  // namespace lockstep
