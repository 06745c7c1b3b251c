// Keras' names of activations, initializers and paddings as programs write them.
#pragma once

#include "core/join_words.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <string_view>
#include <vector>

namespace lockstep {

/// The choice with this name. `name_of` gives the name of a choice; `what` is the kind of choice, for the message.
/// Throws UsageError, which lists all names.
template <typename Choices, typename NameOf>
[[nodiscard]] auto named_choice(std::string_view what, std::string_view name, const Choices& choices, NameOf name_of) {
  std::vector<std::string_view> names;
  for (const auto& choice : choices) {
    if (name_of(choice) == name) return choice;
    names.push_back(name_of(choice));
  }
  throw UsageError(fmt::format("there is no {} '{}'; choose {}", what, name, join_words(names, "or")));
}

}  // namespace lockstep
