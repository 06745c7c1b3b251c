// See format_number.hpp.
#include "core/format_number.hpp"

#include <fmt/format.h>
#include <array>
#include <cstddef>

namespace lockstep {

namespace {

std::string scale(double bytes, double base, const std::array<const char*, 5>& units, int decimals) {
  std::size_t unit = 0;
  for (; bytes >= base && unit + 1 < units.size(); ++unit) bytes /= base;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : decimals, units.at(unit));
}

}  // namespace

std::string count_of(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string with_commas(std::int64_t number) {
  std::string digits = std::to_string(number);
  const std::size_t first = number < 0 ? 1 : 0;
  for (std::size_t place = digits.size(); place > first + 3; place -= 3) digits.insert(place - 3, 1, ',');
  return digits;
}

std::string format_bytes(double bytes) { return scale(bytes, 1024, {"B", "KB", "MB", "GB", "TB"}, 2); }

std::string format_traffic(double bytes) { return scale(bytes, 1000, {"B", "kB", "MB", "GB", "TB"}, 1); }

}  // namespace lockstep
