// The command `lockstep serve`: answers prediction requests with the newest model of a directory.
#pragma once

#include <span>
#include <string>

namespace lockstep {

/// Serves until SIGTERM or Ctrl-C. Throws Error.
void serve(std::span<const std::string> args);

}  // namespace lockstep
