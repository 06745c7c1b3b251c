// See json_text.hpp.
#include "cluster/json_text.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

namespace {

constexpr std::size_t longest_quote = 60;
constexpr std::size_t context = 15;  // characters shown on either side of a place

}  // namespace

std::string quote(std::string_view text) {
  std::string shown = "'";
  for (const char c : text.substr(0, longest_quote)) shown += c >= ' ' && c <= '~' ? c : '?';
  return shown + (text.size() > longest_quote ? "...'" : "'");
}

std::string place_in(std::string_view text, std::size_t offset) {
  offset = std::min(offset, text.size());
  const std::string_view before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t line_begin = before.rfind('\n') + 1;  // 0 where there is none
  const std::size_t first = offset > context ? offset - context : 0;
  return "line " + std::to_string(line) + ", column " + std::to_string(offset - line_begin + 1) + ", near " +
         quote(text.substr(first, offset - first + context));
}

std::string without_trailing_commas(std::string text) {
  constexpr std::string_view blanks = " \t\r\n";
  constexpr std::string_view before_a_value = "[{,:";
  std::size_t comma = std::string::npos;  // one that follows a value, as long as only blanks have followed it
  char last = ',';                        // what was read last, blanks left out
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
    const bool after_value = before_a_value.find(last) == std::string_view::npos;
    comma = c == ',' && after_value ? i : std::string::npos;
    in_string = c == '"';
    last = c;
  }
  return text;
}

}  // namespace lockstep
