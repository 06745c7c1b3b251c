// Text in lower case.
#pragma once

#include <algorithm>
#include <string>

namespace lockstep {

/// ASCII letters only, whatever the locale.
[[nodiscard]] inline std::string lower_case(std::string text) {
  const auto lower = [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  };
  std::ranges::transform(text, text.begin(), lower);
  return text;
}

}  // namespace lockstep
