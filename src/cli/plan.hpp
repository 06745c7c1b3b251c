// `lockstep plan`: a dry run that predicts how workers would shard a model, the bytes they would exchange, and the time
// of a step.
#pragma once

#include <span>
#include <string>

namespace lockstep {

/// `args` are those after the command. Throws Error.
void plan(std::span<const std::string> args);

}  // namespace lockstep
