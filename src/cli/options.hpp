// `lockstep options --markdown`: the table of options that README shows.
#pragma once

#include <lockstep/core/error.hpp>

#include <ostream>
#include <span>
#include <string>

namespace lockstep {

/// Throws UsageError for any other arguments.
[[nodiscard]] ExitCode print_options(std::span<const std::string> args, std::ostream& out);

}  // namespace lockstep
