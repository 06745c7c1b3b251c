// `lockstep inspect` for people.
#pragma once

#include "cli/inspected_file.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

/// The model as a table, its training, and a line a tensor.
[[nodiscard]] std::string describe_file(const InspectedFile& file);

/// "sequential, 2,770,634 parameters, SGD, 700 steps made": one line of a directory's list.
[[nodiscard]] std::string describe_briefly(const InspectedFile& file);

/// "10.57 MB", in powers of 1024, as Keras counts.
[[nodiscard]] std::string print_bytes(std::uint64_t bytes);

/// Without control characters: names come from files that anybody may have written, and a terminal obeys them.
[[nodiscard]] std::string printable(std::string text);

}  // namespace lockstep
