// The work of a parameter server.
#pragma once

#include "session/run_context.hpp"

namespace lockstep {

/// Updates the variables of all models that are compiled, step by step as the workers send their gradients, until the
/// job is over. Then the process exits, with 0, or with 75 if the workers have left.
[[noreturn]] void serve_parameters(RunContext& run_context);

}  // namespace lockstep
