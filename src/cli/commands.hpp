// The commands of `lockstep`: dispatch and `lockstep --help` derive from this table.
#pragma once

#include <lockstep/core/error.hpp>

#include <ostream>
#include <span>
#include <string>
#include <variant>

namespace lockstep {

/// Returns the exit code. Throws Error, and TextRequest for --help.
using LocalCommand = ExitCode (*)(std::span<const std::string> args, std::ostream& out);

/// Runs on all workers of a world, as the programs of models/ do. Callers must not catch its exceptions: an uncaught
/// one ends the whole world (see training/error_handler.hpp).
using WorldCommand = void (*)(std::span<const std::string> args);

struct Command {
  std::string name;
  std::string help;                              ///< one line
  std::variant<LocalCommand, WorldCommand> run;  ///< takes the arguments after the command's name
};

[[nodiscard]] std::span<const Command> commands();

}  // namespace lockstep
