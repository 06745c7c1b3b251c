// See quote.hpp.
#include "cluster/net/quote.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

std::string quote(std::string_view text) {
  constexpr std::size_t max_length = 60;
  std::string shown = "'";
  for (const char c : text.substr(0, max_length)) shown += c >= ' ' && c <= '~' ? c : '?';
  return shown + (text.size() > max_length ? "...'" : "'");
}

}  // namespace lockstep
