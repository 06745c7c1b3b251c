// Lists of optimizers for tests. They include every existing optimizer, so that new ones are tested automatically.
#pragma once

#include "core/variant_types.hpp"

#include <lockstep/optimizers/optimizers.hpp>

#include <algorithm>
#include <type_traits>
#include <variant>
#include <vector>

namespace lockstep::testing {

/// Returns `given`, followed by every other optimizer with Keras' defaults.
[[nodiscard]] inline std::vector<Optimizer> complete(std::vector<Optimizer> given) {
  for_each_alternative<Optimizer>([&given]<typename T>(std::type_identity<T>) {
    const auto is_one = [](const Optimizer& optimizer) { return std::holds_alternative<T>(optimizer); };
    if (std::none_of(given.begin(), given.end(), is_one)) given.emplace_back(T());
  });
  return given;
}

}  // namespace lockstep::testing
