// Options::parse without a process around it: arguments and environment come in as values, errors and requests for text
// go out as exceptions.
#pragma once

#include <lockstep/training/options.hpp>

#include <span>
#include <string>

#include "core/environment.hpp"

namespace lockstep {

/// Thrown where the user asks for --help or --version: the text to print before the program ends with 0.
struct TextRequest {
  std::string text;
};

/// What a program is for.
struct Purpose {
  std::string sentence = "Trains on every worker of the world";  ///< in its help
  bool trains = true;                                            ///< else it has no options for training
};

/// `args` are those after the program's name, which is `defaults.program`. Throws UsageError or TextRequest.
[[nodiscard]] Options parse_options(std::span<const std::string> args, const Environment& environment, Options defaults,
                                    std::span<const ProgramOption> own = {}, const Purpose& purpose = {});

/// Options::parse for a program of any purpose.
[[nodiscard]] Options parse_or_exit(std::span<const std::string> args, Options defaults,
                                    std::span<const ProgramOption> own, const Purpose& purpose = {});

}  // namespace lockstep
