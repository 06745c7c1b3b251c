// See option_row.hpp.
#include "options/option_row.hpp"

namespace lockstep {
namespace {

constexpr double max_seconds = 30.0 * 24 * 3600;

}  // namespace

std::string OptionRow::shown_default() const {
  const std::string current = value.print();
  return (current.empty() || current == "0") && !default_text.empty() ? default_text : current;
}

OptionBinding positive_number(std::optional<double>& variable, double (*read)(const OptionValue& given)) {
  return {[&variable, read](const OptionValue& given) { variable = read(given); },
          [&variable] { return variable ? fmt::format("{}", *variable) : std::string(); },
          [&variable] { return NamedValue(variable.value_or(std::numeric_limits<double>::quiet_NaN())); }};
}

OptionBinding seconds(double& variable, double minimum, bool zero_is_never) {
  const auto is_allowed = [minimum, zero_is_never](double number) {
    return (number >= minimum && number <= max_seconds) || (zero_is_never && number == 0);
  };
  const std::string allowed =
      fmt::format("{}a number of seconds from {} to {}", zero_is_never ? "0 (never) or " : "", minimum, max_seconds);
  return {[=, &variable](const OptionValue& given) { variable = read_number(given, is_allowed, allowed); },
          [&variable] { return fmt::format("{}", variable); }, [&variable] { return NamedValue(variable); }};
}

OptionBinding path(std::filesystem::path& variable) {
  return {[&variable](const OptionValue& given) { variable = given.value; }, [&variable] { return variable.string(); },
          [&variable] { return NamedValue(variable.string()); }};
}

OptionBinding text(std::string& variable) {
  return {[&variable](const OptionValue& given) { variable = given.value; }, [&variable] { return variable; },
          [&variable] { return NamedValue(variable); }};
}

OptionBinding flag(bool& variable) {
  return {[&variable](const OptionValue& given) { variable = read_bool(given); },
          [&variable] { return std::string(variable ? "on" : "off"); }, [&variable] { return NamedValue(variable); }};
}

}  // namespace lockstep
