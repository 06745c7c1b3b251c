// The command line of the program `lockstep`.
#pragma once

#include <lockstep/core/error.hpp>

#include <ostream>
#include <span>
#include <string>

namespace lockstep {

/// `args` are those after the program's name. Writes results to `out`, and an error as one sentence to `err`.
[[nodiscard]] ExitCode run_command_line(std::span<const std::string> args, std::ostream& out, std::ostream& err);

}  // namespace lockstep
