// See json_tasks.hpp.
#include "cluster/config/json_tasks.hpp"

#include "cluster/config/json_text.hpp"
#include "cluster/net/quote.hpp"
#include "core/parse_number.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

namespace {

using json = nlohmann::json;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Python's int() of a string of ASCII characters, which accepts surrounding whitespace, a sign, leading zeros, and
/// single underscores between digits.
std::optional<std::int64_t> parse_integer(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n\v\f";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  text = text.substr(first, text.find_last_not_of(blanks) + 1 - first);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_separator =
        text[i] == '_' && i > 0 && i + 1 < text.size() && is_digit(text[i - 1]) && is_digit(text[i + 1]);
    if (!is_separator) digits += text[i];
  }
  return parse_number<std::int64_t>(digits);
}

/// Python's int() of a JSON value.
std::optional<std::int64_t> to_integer(const json& value) {
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  if (value.is_string()) return parse_integer(value.get_ref<const std::string&>());
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    return number > static_cast<std::uint64_t>(largest) ? largest : static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!value.is_number_float()) return {};
  return static_cast<std::int64_t>(std::clamp(std::trunc(value.get<double>()), -1e18, 1e18));
}

}  // namespace

int read_task_index(const json& value, const std::string& where) {
  return check_task_index(to_integer(value), where, describe_json(value));
}

void read_tasks(TaskTable& table, const std::string& type, const json& value, const std::string& where) {
  const std::string& source = table.source();
  table.add_type(type);
  if (!value.is_array() && !value.is_object()) {
    throw UsageError(
        fmt::format(R"({}'s {} is {}, but must be a list of "host:port")", source, where, describe_json(value)));
  }
  table.require_room_for(value.size(), where);
  for (const auto& item : value.items()) {  // the keys of a list are its indices
    const std::string entry = fmt::format("{}[{}]", where, value.is_array() ? item.key() : quote(item.key()));
    const int index =
        check_task_index(parse_integer(item.key()), fmt::format("{}'s {}'s key", source, where), quote(item.key()));
    if (!item.value().is_string()) {
      throw UsageError(
          fmt::format(R"({}'s {} is {}, but must be a "host:port")", source, entry, describe_json(item.value())));
    }
    table.add(type, index, item.value().get_ref<const std::string&>(), entry);
  }
}

}  // namespace lockstep
