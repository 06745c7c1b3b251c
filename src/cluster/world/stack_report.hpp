// Where a trainer is, for a log: the launcher sends SIGQUIT when a start takes long.
#pragma once

namespace lockstep {

/// From now on this process prints the stack of its main thread to standard error when it receives SIGQUIT, and goes
/// on.
void print_stack_on_request();

}  // namespace lockstep
