// Lists in sentences.
#pragma once

#include <cstddef>
#include <ranges>
#include <string>
#include <string_view>

namespace lockstep {

/// "A, B and C"; `conjunction` replaces "and".
template <std::ranges::random_access_range Words>
[[nodiscard]] std::string join_words(const Words& words, std::string_view conjunction = "and") {
  const std::size_t count = std::ranges::size(words);
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0 && i + 1 == count) {
      text.append(" ").append(conjunction).append(" ");
    } else if (i > 0) {
      text += ", ";
    }
    text += std::string_view(words[i]);
  }
  return text;
}

}  // namespace lockstep
