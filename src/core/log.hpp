// Messages for the person who runs a program. They go to standard error, whole lines at a time; standard output belongs
// to what the program was asked for. Ranks other than the chief sign their lines: "[rank 3] ...".
#pragma once

#include <string>

namespace lockstep {

void log_info(const std::string& message);
void log_warning(const std::string& message);  ///< prefixed "warning: "
void log_error(const std::string& message);    ///< prefixed "error: "

/// The line a message becomes; apart for the tests.
[[nodiscard]] std::string log_line(int rank, const std::string& severity, const std::string& message);

}  // namespace lockstep
