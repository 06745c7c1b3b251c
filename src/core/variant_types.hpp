// Iterates over the types of a std::variant, so that lists of layers, losses and optimizers come from the variant.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <variant>

namespace lockstep {

/// Calls visitor(std::type_identity<T>()) for each alternative T, in the variant's order.
template <typename Variant, typename Visitor>
constexpr void for_each_alternative(Visitor&& visitor) {
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    (visitor(std::type_identity<std::variant_alternative_t<i, Variant>>()), ...);
  }
  (std::make_index_sequence<std::variant_size_v<Variant>>());
}

}  // namespace lockstep
