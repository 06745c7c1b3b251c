// See json_text.hpp.
#include "cluster/config/json_text.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "cluster/net/quote.hpp"

namespace lockstep {

namespace {

constexpr std::size_t context = 15;  // characters shown on either side of a position

}  // namespace

std::string describe_position(std::string_view text, std::size_t offset) {
  offset = std::min(offset, text.size());
  const std::string_view before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t line_begin = before.rfind('\n') + 1;  // 0 on the first line
  const std::size_t first = offset > context ? offset - context : 0;
  return fmt::format("line {}, column {}, near {}", line, offset - line_begin + 1,
                     quote(text.substr(first, offset - first + context)));
}

std::string without_trailing_commas(std::string text) {
  constexpr std::string_view blanks = " \t\r\n";
  constexpr std::string_view before_value = "[{,:";
  std::size_t comma = std::string::npos;  // position of a comma after a value, followed only by blanks so far
  char last = ',';                        // the last character that was not blank
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
      continue;
    }
    if (blanks.find(c) != std::string_view::npos) continue;
    if ((c == ']' || c == '}') && comma != std::string::npos) text[comma] = ' ';
    const bool after_value = before_value.find(last) == std::string_view::npos;
    comma = c == ',' && after_value ? i : std::string::npos;
    in_string = c == '"';
    last = c;
  }
  return text;
}

}  // namespace lockstep
