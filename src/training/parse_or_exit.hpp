// Options::parse for programs of every purpose: parses arguments and environment. Exits after printing help, the
// version or an error.
#pragma once

#include <lockstep/training/options.hpp>

#include <span>
#include <string>

#include "options/shared_options.hpp"

namespace lockstep {

/// `args` exclude the program's name, which is `defaults.program`.
[[nodiscard]] Options parse_or_exit(std::span<const std::string> args, Options defaults,
                                    std::span<const ProgramOption> program_options, const ProgramPurpose& purpose = {});

}  // namespace lockstep
