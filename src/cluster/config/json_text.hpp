// Reads the JSON of environment variables that describe a cluster: positions for error messages, and repair of trailing
// commas.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace lockstep {

/// Parses the value of a variable, of at most 1 MiB. A comma before a closing bracket is ignored with a warning. Throws
/// UsageError, also if an object has a key twice.
[[nodiscard]] nlohmann::json parse_json(const std::string& variable, const std::string& text,
                                        std::vector<std::string>& warnings);

/// Describes a value in messages: "'text'", "a list", "1.5".
[[nodiscard]] std::string describe_json(const nlohmann::json& value);

/// "line 2, column 7, near '...'" for the byte at `offset`, which may be past the end.
[[nodiscard]] std::string describe_position(std::string_view text, std::size_t offset);

/// Replaces each comma between a value and a closing bracket by a space; templates that write lists in loops leave
/// these commas. All other bytes, including strings, keep their value and position.
[[nodiscard]] std::string without_trailing_commas(std::string text);

}  // namespace lockstep
