// See printable.hpp.
#include "core/printable.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

std::string printable(std::string_view text) {
  std::string result(text);
  unsigned char previous = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto byte = static_cast<unsigned char>(result[i]);
    if (previous == 0xC2 && byte >= 0x80 && byte < 0xA0) {  // U+0080..U+009F
      result[i - 1] = '?';
      result[i] = '?';
    } else if ((byte < 0x20 && byte != '\n') || byte == 0x7F) {
      result[i] = '?';
    }
    previous = byte;
  }
  return result;
}

std::string printable_line(std::string_view text, std::size_t max_bytes) {
  std::string line(text.substr(0, max_bytes));
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  line = printable(line);
  if (text.size() > max_bytes) line += "...";
  return line;
}

}  // namespace lockstep
