// Keras' names of enumerators, for fields in files.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace lockstep {

/// A specialization for an enum has `names`: an array of the names, in the order of the enumerators.
template <typename Enum>
struct EnumNames;

template <typename Enum>
concept NamedEnum = requires {
  EnumNames<Enum>::names;
};

template <NamedEnum Enum>
[[nodiscard]] constexpr std::string_view enum_name(Enum value) noexcept {
  return EnumNames<Enum>::names[static_cast<std::size_t>(value)];
}

}  // namespace lockstep
