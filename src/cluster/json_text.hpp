// TF_CONFIG while it is still text: how a part of it is shown to a person, and the one mistake in it that is mended.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

/// In single quotes, at most 60 characters of it, and none that would move a terminal's cursor.
[[nodiscard]] std::string quote(std::string_view text);

/// "line 2, column 7, near '...'" for the byte at `offset`, which may lie at the end or beyond.
[[nodiscard]] std::string place_in(std::string_view text, std::size_t offset);

/// With a space in place of each comma between a value and a closing bracket: templates that write lists in loops leave
/// such commas. All else, strings above all, stays as and where it is.
[[nodiscard]] std::string without_trailing_commas(std::string text);

}  // namespace lockstep
