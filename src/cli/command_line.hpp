// What the program `lockstep` does with its arguments.
#pragma once

#include <lockstep/core/error.hpp>

#include <ostream>
#include <span>
#include <string>

namespace lockstep {

/// `args` are those after the program's name. Results go to `out`, one sentence on what went wrong to `err`.
[[nodiscard]] ExitCode run_command_line(std::span<const std::string> args, std::ostream& out, std::ostream& err);

}  // namespace lockstep
