// Errors that travel between processes as an exit code and a message.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// Throws the kind of error that ends a process with this code.
[[noreturn]] void throw_error_of_code(std::uint64_t code, const std::string& message);

}  // namespace lockstep
