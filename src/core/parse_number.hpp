// Reads numbers from text: of options, environment variables, addresses and file names.
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

namespace lockstep {

/// All of `text` as a number, in std::from_chars' syntax; nullopt if it is not one or does not fit the type.
template <typename Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

/// Numbers that commas separate; nothing unless each is one.
template <typename Number>
[[nodiscard]] std::optional<std::vector<Number>> parse_numbers(std::string_view text) {
  std::vector<Number> numbers;
  while (true) {
    const std::size_t comma = text.find(',');
    const auto number = parse_number<Number>(text.substr(0, comma));
    if (!number) return std::nullopt;
    numbers.push_back(*number);
    if (comma == std::string_view::npos) return numbers;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace lockstep
