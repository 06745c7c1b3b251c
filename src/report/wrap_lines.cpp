// See wrap_lines.hpp.
#include "report/wrap_lines.hpp"

#include <algorithm>

namespace lockstep {

std::string wrap_lines(std::string_view text, std::size_t columns, std::size_t option_indent) {
  std::string wrapped;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, end));
    const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
    const bool is_option = begin > 0 && line.substr(begin).starts_with('-');
    const std::size_t indent = is_option ? option_indent : begin;
    while (line.size() > columns) {
      std::size_t space = line.rfind(' ', columns);
      if (space == std::string::npos || space <= indent) space = line.find(' ', columns);  // a long word
      if (space == std::string::npos) break;
      const std::size_t next = line.find_first_not_of(' ', space);
      if (next == std::string::npos) break;
      wrapped.append(line, 0, line.find_last_not_of(' ', space) + 1).append("\n");
      line = std::string(indent, ' ') + line.substr(next);
    }
    wrapped += line;
    if (end < text.size()) wrapped += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return wrapped;
}

}  // namespace lockstep
