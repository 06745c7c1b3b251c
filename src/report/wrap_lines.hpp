// Fits help into a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

/// Breaks lines longer than `columns` at spaces. The rest of an option's line is indented to `option_indent` columns,
/// where its description begins; that of any other line as its beginning. Words are not broken.
[[nodiscard]] std::string wrap_lines(std::string_view text, std::size_t columns, std::size_t option_indent);

}  // namespace lockstep
