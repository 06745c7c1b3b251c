// The text that `lockstep inspect` prints without --json.
#pragma once

#include "cli/inspected_file.hpp"

#include <string>

namespace lockstep {

/// The model's summary, its training configuration, and one line per tensor.
[[nodiscard]] std::string describe_file(const InspectedFile& file);

/// "sequential, 2,770,634 parameters, SGD, 700 steps": one line of a directory's list.
[[nodiscard]] std::string summarize_file(const InspectedFile& file);

}  // namespace lockstep
