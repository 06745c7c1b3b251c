// Text of files and peers made safe to print: a terminal acts on control characters, so a model's name or a peer's
// message could move the cursor or hide other lines.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

/// Replaces control characters by '?': codes below 0x20 except newline, 0x7F, and U+0080..U+009F in UTF-8.
/// The length in bytes stays the same.
[[nodiscard]] std::string printable(std::string_view text);

/// printable() on one line: newlines and tabs become spaces, and "..." replaces what exceeds `max_bytes`.
[[nodiscard]] std::string printable_line(std::string_view text, std::size_t max_bytes = 2000);

}  // namespace lockstep
