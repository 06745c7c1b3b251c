// `lockstep launch [OPTIONS] -- PROGRAM ARGS`: trains with PROGRAM on all workers of TF_CONFIG, without mpirun.
#pragma once

#include <lockstep/core/error.hpp>

#include <ostream>
#include <span>
#include <string>

namespace lockstep {

constexpr const char* launch_help = "Run a program on all workers of TF_CONFIG, and again when one is lost";

/// `args`: those after `launch`. The job's exit code. Throws Error.
[[nodiscard]] ExitCode launch(std::span<const std::string> args, std::ostream& out);

}  // namespace lockstep
