// `lockstep plan`: how workers would divide a model, what that would send, and how long a step would take; a dry run.
#pragma once

#include <span>
#include <string>

namespace lockstep {

/// `args` are those after the command. What goes wrong is thrown.
void plan(std::span<const std::string> args);

}  // namespace lockstep
