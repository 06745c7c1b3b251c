// See json_text.hpp.
#include "cluster/config/json_text.hpp"

#include "cluster/net/quote.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

using json = nlohmann::json;

constexpr std::size_t context = 15;  // characters shown on either side of a position
constexpr std::size_t max_bytes = std::size_t{1} << 20U;

[[noreturn]] void refuse_json(const std::string& variable, const std::string& text, const json::parse_error& error) {
  const std::size_t offset = error.byte == 0 ? 0 : error.byte - 1;
  const bool ends = offset >= text.size();
  const bool quoted = !ends && text[offset] == '\'';
  throw UsageError(fmt::format("{} is not valid JSON at {}; {}", variable, describe_position(text, offset),
                               ends     ? "it ends too early: close the open quote or bracket"
                               : quoted ? "use double quotes"
                                        : "check quotes, commas and brackets there"));
}

/// Refuses an object with the same key twice, of which parsers keep one and drop the other in silence.
class DuplicateKeys {
 public:
  explicit DuplicateKeys(std::string variable) : variable_(std::move(variable)) {}
  /// Takes an event of the parser. Throws UsageError.
  void check(json::parse_event_t event, const json& parsed) {
    if (event == json::parse_event_t::object_start) {
      keys_.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys_.pop_back();
    } else if (event == json::parse_event_t::key && !keys_.back().insert(parsed.get<std::string>()).second) {
      throw UsageError(fmt::format("{} has the key {} twice in one object; keep one of them", variable_,
                                   quote(parsed.get_ref<const std::string&>())));
    }
  }

 private:
  std::string variable_;
  std::vector<std::set<std::string>> keys_;  ///< of each open object
};

/// Throws json::parse_error.
json parse_strictly(const std::string& variable, const std::string& text) {
  DuplicateKeys keys(variable);
  try {
    return json::parse(text, [&](int /*depth*/, json::parse_event_t event, const json& parsed) {
      keys.check(event, parsed);
      return true;
    });
  } catch (const json::out_of_range& error) {  // a number out of range, quoted in what()
    const std::string_view what = error.what();
    const std::size_t number = what.find('\'');
    throw UsageError(fmt::format("{} has a number that is too large: {}; use a smaller one", variable,
                                 quote(number < what.size() ? what.substr(number + 1) : what)));
  }
}

}  // namespace

json parse_json(const std::string& variable, const std::string& text, std::vector<std::string>& warnings) {
  if (text.size() > max_bytes) {
    throw UsageError(fmt::format("{} has {} bytes, more than the limit of {}; it begins with {}", variable, text.size(),
                                 max_bytes, quote(text)));
  }
  try {
    return parse_strictly(variable, text);
  } catch (const json::parse_error& error) {
    const std::string repaired = without_trailing_commas(text);
    if (repaired == text) refuse_json(variable, text, error);
    try {
      json document = parse_strictly(variable, repaired);
      warnings.push_back(variable +
                         " has a comma before a closing bracket, which JSON does not allow; the comma is ignored");
      return document;
    } catch (const json::parse_error& other) {
      refuse_json(variable, text, other);
    }
  }
}

std::string describe_json(const json& value) {
  if (value.is_string()) return quote(value.get_ref<const std::string&>());
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  return value.dump();
}

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
