// See read_value.hpp.
#include "options/read_value.hpp"

#include "options/nearest_name.hpp"

#include <cmath>

namespace lockstep {

void refuse(const OptionValue& given, const std::string& allowed) { refuse_word(given, {}, {}, allowed); }

void refuse_word(const OptionValue& given, std::string_view word, std::span<const std::string> names,
                 const std::string& allowed) {
  const std::string hint = did_you_mean("", word, names);
  throw UsageError(fmt::format("{} is '{}' but must be {}{}", given.source, given.value, allowed,
                               hint.empty() ? "; see --help" : hint + " See --help"));
}

double read_number(const OptionValue& given, const std::function<bool(double)>& is_allowed,
                   const std::string& allowed) {
  const auto number = parse_number<double>(given.value);
  if (!number) {
    const bool has_comma = given.value.find(',') != std::string::npos;
    refuse(given, fmt::format("a number{}, {}", has_comma ? " with a point instead of the comma" : "", allowed));
  }
  if (!is_allowed(*number)) refuse(given, allowed);
  return *number;
}

namespace {

bool is_positive(double number) {
  const auto narrow = static_cast<float>(number);  // steps compute in float
  return std::isfinite(narrow) && narrow > 0;
}

}  // namespace

double read_positive(const OptionValue& given) {
  return read_number(given, is_positive, "greater than 0 and at most 3.4e38");
}

double read_factor(const OptionValue& given) {
  constexpr std::string_view one_over = "1/";
  OptionValue divisor = given;
  const bool is_quotient = given.value.starts_with(one_over);
  if (is_quotient) divisor.value.erase(0, one_over.size());
  const std::optional<double> number = parse_number<double>(divisor.value);
  const double factor = !number ? 0 : is_quotient ? 1 / *number : *number;
  if (!is_positive(factor)) refuse(given, "greater than 0 and at most 3.4e38, or a quotient such as 1/255");
  return factor;
}

bool read_bool(const OptionValue& given) {
  if (given.value == "1" || given.value == "true") return true;
  if (given.value == "0" || given.value == "false") return false;
  refuse(given, "1, true, 0 or false");
}

}  // namespace lockstep
