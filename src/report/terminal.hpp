// Where progress is shown: whether a line can be drawn anew, and which characters can be shown.
#pragma once

#include "core/environment.hpp"

namespace lockstep {

struct Terminal {
  bool redraws = false;  ///< a person watches; else the output goes to a file or a pipe
  bool utf8 = false;
};

/// What standard output is. mpirun gives its local ranks a pseudo-terminal whatever its own output is, so there the
/// output of the parent, mpirun, decides.
[[nodiscard]] Terminal detect_terminal(const Environment& environment);

/// Whether LC_ALL, LC_CTYPE or LANG (the first that is set) names an UTF-8 locale.
[[nodiscard]] bool is_utf8_locale(const Environment& environment);

}  // namespace lockstep
