// See read_value.hpp.
#include "options/read_value.hpp"

#include <cmath>

namespace lockstep {

void refuse(const OptionValue& given, const std::string& allowed) {
  throw UsageError(fmt::format("{} is '{}' but must be {}; see --help", given.source, given.value, allowed));
}

double read_number(const OptionValue& given, const std::function<bool(double)>& is_allowed,
                   const std::string& allowed) {
  const auto number = parse_number<double>(given.value);
  if (!number || !is_allowed(*number)) refuse(given, allowed);
  return *number;
}

double read_positive(const OptionValue& given) {
  const auto is_positive = [](double number) {
    const auto narrow = static_cast<float>(number);  // steps compute in float
    return std::isfinite(narrow) && narrow > 0;
  };
  return read_number(given, is_positive, "a finite number greater than 0");
}

bool read_bool(const OptionValue& given) {
  if (given.value == "1" || given.value == "true") return true;
  if (given.value == "0" || given.value == "false") return false;
  refuse(given, "1, true, 0 or false");
}

}  // namespace lockstep
