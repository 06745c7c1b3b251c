// `lockstep launch [OPTIONS] -- PROGRAM [ARGS...]`: runs a training program on all workers of TF_CONFIG, without
// mpirun.
#pragma once

#include <lockstep/core/error.hpp>

#include <ostream>
#include <span>
#include <string>

namespace lockstep {

/// `args` are those after `launch`. Returns the job's exit code. Throws Error, and TextRequest for --help.
[[nodiscard]] ExitCode launch(std::span<const std::string> args, std::ostream& out);

}  // namespace lockstep
