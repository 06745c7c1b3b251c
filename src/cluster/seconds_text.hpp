// Seconds as people are told of them where tenths do not matter: "600 s".
#pragma once

#include <cmath>
#include <string>

namespace lockstep {

[[nodiscard]] inline std::string seconds_text(double seconds) { return std::to_string(std::lround(seconds)) + " s"; }

}  // namespace lockstep
