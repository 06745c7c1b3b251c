// See http_request.hpp.
#include "cluster/status/http_request.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

namespace {

constexpr std::size_t max_method_length = 16;

bool is_visible(char c) { return c > ' ' && c < 0x7F; }

[[noreturn]] void refuse() { throw DataError("not an HTTP request"); }

/// "GET /path HTTP/1.1"
HttpRequest read_first_line(std::string_view line) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) refuse();
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!target.starts_with('/') || !std::all_of(target.begin(), target.end(), is_visible)) refuse();
  if (version != "HTTP/1.1" && version != "HTTP/1.0") refuse();
  return {std::string(line.substr(0, first)), std::string(target.substr(0, target.find('?')))};
}

const char* reason_of(int code) {
  switch (code) {
    case 200: return "OK";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 503: return "Service Unavailable";
    default: return "Bad Request";
  }
}

}  // namespace

std::optional<HttpRequest> read_http_request(std::string_view bytes) {
  // The method alone distinguishes HTTP from most other protocols, so others are refused before the line is complete.
  const std::size_t letters = std::min(bytes.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), bytes.size());
  if (letters > max_method_length) refuse();
  if (letters < bytes.size() && (letters == 0 || bytes[letters] != ' ')) refuse();

  const std::size_t line_end = bytes.find("\r\n");
  if (line_end == std::string_view::npos) return {};
  HttpRequest request = read_first_line(bytes.substr(0, line_end));
  if (bytes.find("\r\n\r\n") == std::string_view::npos) return {};
  return request;
}

std::string http_reply(int code, std::string_view type, std::string_view body, bool is_head) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Cache-Control: no-store\r\n"
      "Connection: close\r\n\r\n{}",
      code, reason_of(code), type, body.size(), code == 405 ? "Allow: GET, HEAD\r\n" : "", is_head ? "" : body);
}

}  // namespace lockstep
