// See digest.hpp.
#include "core/digest.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace lockstep {

std::string to_hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace lockstep
