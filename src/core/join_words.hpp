// Lists in sentences.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// "A, B and C"; `conjunction` replaces "and".
[[nodiscard]] inline std::string join_words(std::span<const std::string_view> words,
                                            std::string_view conjunction = "and") {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0 && i + 1 == words.size()) {
      text.append(" ").append(conjunction).append(" ");
    } else if (i > 0) {
      text += ", ";
    }
    text += words[i];
  }
  return text;
}

}  // namespace lockstep
