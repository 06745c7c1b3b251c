// See error_of_code.hpp.
#include "core/error_of_code.hpp"

#include <lockstep/core/error.hpp>

namespace lockstep {

void throw_error_of_code(std::uint64_t code, const std::string& message) {
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::usage: throw UsageError(message);
    case ExitCode::data: throw DataError(message);
    case ExitCode::io: throw IoError(message);
    case ExitCode::temporary: throw PeerError(message);
    default: throw InternalError(message);
  }
}

}  // namespace lockstep
