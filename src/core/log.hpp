// Messages for the person who runs a program. They go to standard error in whole lines; standard output carries only
// the program's results. Ranks other than the chief prefix their lines: "[rank 3] ...". Messages may quote files and
// peers: control characters are replaced (printable.hpp).
#pragma once

#include <string>

namespace lockstep {

void log_info(const std::string& message);
void log_warning(const std::string& message);  ///< prefixed "warning: "
void log_error(const std::string& message);    ///< prefixed "error: "

/// Says whether a line of the terminal is still being drawn, as by a progress bar. A message then begins a new line,
/// and nothing is being drawn any more.
void set_drawing_line(bool is_drawing) noexcept;
[[nodiscard]] bool is_drawing_line() noexcept;

/// Formats a message as a line; public for tests. `severity` is "", "warning" or "error".
[[nodiscard]] std::string log_line(int rank, const std::string& severity, const std::string& message);

}  // namespace lockstep
