// See quote.hpp.
#include "cluster/net/quote.hpp"

#include "core/printable.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

std::string quote(std::string_view text) {
  constexpr std::size_t max_length = 60;
  std::size_t length = std::min(text.size(), max_length);
  const auto is_inside_character = [&text](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
  };
  while (length > 0 && length < text.size() && is_inside_character(length)) --length;
  return "'" + printable_line(text.substr(0, length)) + (text.size() > max_length ? "...'" : "'");
}

}  // namespace lockstep
