// Helpers for TF_CONFIG as text: positions for error messages, and repair of trailing commas.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

/// "line 2, column 7, near '...'" for the byte at `offset`, which may be past the end.
[[nodiscard]] std::string describe_position(std::string_view text, std::size_t offset);

/// Replaces each comma between a value and a closing bracket by a space; templates that write lists in loops leave
/// these commas. All other bytes, including strings, keep their value and position.
[[nodiscard]] std::string without_trailing_commas(std::string text);

}  // namespace lockstep
