// Iterates over the types of a std::variant, or of a class derived from one, so that lists of layers, losses and
// optimizers come from the variant.
#pragma once

#include <cstddef>
#include <type_traits>
#include <variant>

namespace lockstep {

/// Calls visitor(std::type_identity<T>()) for each alternative T, in the variant's order.
template <typename Variant, typename Visitor>
constexpr void for_each_alternative(Visitor&& visitor) {
  [&]<typename... T>(const std::variant<T...>*) {
    (visitor(std::type_identity<T>()), ...);
  }(static_cast<const Variant*>(nullptr));
}

/// The number of alternatives.
template <typename Variant>
inline constexpr std::size_t num_alternatives =
    []<typename... T>(const std::variant<T...>*) { return sizeof...(T); }(static_cast<const Variant*>(nullptr));

}  // namespace lockstep
