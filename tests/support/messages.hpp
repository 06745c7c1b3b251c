// Checks of error messages.
#pragma once

#include "support/catch.hpp"

#include <functional>
#include <string>
#include <vector>

namespace lockstep::testing {

/// The message of the `Expected` that `action` throws, or a text that matches no test if it throws nothing.
template <typename Expected>
[[nodiscard]] std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Expected& error) {
    return error.what();
  }
  return "no such error was thrown";
}

[[nodiscard]] inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline void require_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    INFO("text:  " << text << "\nlacks: " << word);
    CHECK(contains(text, word));
  }
}

}  // namespace lockstep::testing
