// Parses the text of an option. All programs parse values here, so their error messages are alike. The functions
// throw UsageError, which names the source of the value and the allowed values.
#pragma once

#include "core/parse_number.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/options.hpp>

#include <fmt/format.h>
#include <concepts>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// Throws: "--epochs is 'x' but must be `allowed`; see --help".
[[noreturn]] void refuse(const OptionValue& given, const std::string& allowed);

/// Throws: "--optimizer is 'adm' but must be `allowed`; did you mean adam? See --help". `word` is the part of the value
/// that is none of `names`.
[[noreturn]] void refuse_word(const OptionValue& given, std::string_view word, std::span<const std::string> names,
                              const std::string& allowed);

template <std::integral Number>
[[nodiscard]] Number read_whole(const OptionValue& given, Number minimum,
                                Number maximum = std::numeric_limits<Number>::max()) {
  const std::optional<Number> number = parse_number<Number>(given.value);
  if (number && *number >= minimum && *number <= maximum) return *number;
  if (maximum < std::numeric_limits<Number>::max()) {
    refuse(given, fmt::format("a whole number from {} to {}", minimum, maximum));
  }
  // The type's maximum is worth a mention only if the number exceeds it.
  const bool is_too_large = !given.value.empty() && given.value.find_first_not_of("0123456789") == std::string::npos &&
                            !(number && *number < minimum);
  refuse(given, fmt::format("a whole number of at least {}{}", minimum,
                            is_too_large ? fmt::format(" and at most {}", maximum) : std::string()));
}

/// A number that `is_allowed` accepts. `allowed` describes these numbers in the error message.
[[nodiscard]] double read_number(const OptionValue& given, const std::function<bool(double)>& is_allowed,
                                 const std::string& allowed);

/// A number that is finite and greater than 0 as a float.
[[nodiscard]] double read_positive(const OptionValue& given);

/// The same, which may be written as "1/255".
[[nodiscard]] double read_factor(const OptionValue& given);

[[nodiscard]] bool read_bool(const OptionValue& given);

}  // namespace lockstep
