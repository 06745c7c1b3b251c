// Names of enumerators in files and metrics.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace lockstep {

/// A specialization for an enum has `all`: an array that pairs each enumerator with its name.
template <typename Enum>
struct EnumNames;

template <typename Enum>
concept NamedEnum = requires {
  EnumNames<Enum>::all;
};

/// Throws std::logic_error for an enumerator without a name.
template <NamedEnum Enum>
[[nodiscard]] constexpr std::string_view enum_name(Enum value) {
  for (const auto& [one, name] : EnumNames<Enum>::all) {
    if (one == value) return name;
  }
  throw std::logic_error("an enumerator has no name");
}

template <NamedEnum Enum>
[[nodiscard]] constexpr std::optional<Enum> enum_of(std::string_view wanted) noexcept {
  for (const auto& [value, name] : EnumNames<Enum>::all) {
    if (name == wanted) return value;
  }
  return std::nullopt;
}

template <NamedEnum Enum>
[[nodiscard]] constexpr auto enum_names() noexcept {
  std::array<std::string_view, EnumNames<Enum>::all.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = EnumNames<Enum>::all[i].second;
  return names;
}

}  // namespace lockstep
