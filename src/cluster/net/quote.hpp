// Quotes untrusted text in messages.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// The text in single quotes, truncated to 60 characters; bytes that are not printable ASCII become '?'.
[[nodiscard]] std::string quote(std::string_view text);

}  // namespace lockstep
