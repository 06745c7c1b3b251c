// See fields.hpp.
#include "core/fields.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <cmath>
#include <string>

namespace lockstep {

bool Interval::contains(double value) const noexcept {
  return std::isfinite(value) && (value > min || (includes_min && value == min)) &&
         (value < max || (includes_max && value == max));
}

std::string Interval::to_string() const {
  const bool has_min = std::isfinite(min);
  const bool has_max = std::isfinite(max);
  if (!has_min && !has_max) return "a finite number";
  if (min == 0 && includes_min && !has_max) return "not negative";
  if (has_min && has_max && includes_min && includes_max) return fmt::format("between {} and {}", min, max);
  std::string text;
  if (has_min) text = fmt::format("{} {}", includes_min ? "at least" : "above", min);
  if (has_min && has_max) text += " and ";
  if (has_max) text += fmt::format("{} {}", includes_max ? "at most" : "below", max);
  return text;
}

void NumberRangeCheck::require_in_range(std::string_view key, double value, const Interval& range) const {
  if (range.contains(value)) return;
  throw UsageError(fmt::format("{}{} is {:.6g}; it must be {}", owner_, key, value, range.to_string()));
}

}  // namespace lockstep
