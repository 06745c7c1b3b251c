// Properties of standard output: whether a line can be redrawn, how long it may be, and whether UTF-8 can be shown.
#pragma once

#include "core/environment.hpp"

namespace lockstep {

struct Terminal {
  bool is_interactive = false;  ///< a terminal that can redraw a line, not a file or pipe
  bool utf8 = false;
  int columns = 80;
};

/// Examines standard output. mpirun gives its local ranks a pseudo-terminal even when its own output is a file, so
/// under mpirun the parent's standard output decides.
[[nodiscard]] Terminal detect_terminal(const Environment& environment);

/// For the table of a model on standard output: Keras' choice of a width, at most that of a file.
[[nodiscard]] int summary_width(const Environment& environment);

/// True if LC_ALL, LC_CTYPE or LANG (the first that is set) names a UTF-8 locale.
[[nodiscard]] bool is_utf8_locale(const Environment& environment);

}  // namespace lockstep
