// Formats durations for messages: "600 s".
#pragma once

#include <fmt/format.h>
#include <cmath>
#include <string>

namespace lockstep {

[[nodiscard]] inline std::string format_seconds(double seconds) { return fmt::format("{} s", std::lround(seconds)); }

}  // namespace lockstep
