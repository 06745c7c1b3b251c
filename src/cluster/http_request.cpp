// See http_request.hpp.
#include "cluster/http_request.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

constexpr std::size_t longest_method = 16;

bool is_visible(char c) { return c > ' ' && c < 0x7F; }

[[noreturn]] void refuse() { throw DataError("this is no HTTP request"); }

/// "GET /path HTTP/1.1"
HttpRequest read_first_line(std::string_view line) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) refuse();
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (target.front() != '/' || !std::all_of(target.begin(), target.end(), is_visible)) refuse();
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
  // A method tells apart HTTP from most of what is not before there is a line.
  const std::size_t letters = std::min(bytes.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), bytes.size());
  if (letters > longest_method) refuse();
  if (letters < bytes.size() && (letters == 0 || bytes[letters] != ' ')) refuse();

  const std::size_t line_end = bytes.find("\r\n");
  if (line_end == std::string_view::npos) return {};
  HttpRequest request = read_first_line(bytes.substr(0, line_end));
  if (bytes.find("\r\n\r\n") == std::string_view::npos) return {};
  return request;
}

std::string http_reply(int code, std::string_view type, std::string_view body, bool is_head) {
  std::string reply = "HTTP/1.1 " + std::to_string(code) + " " + reason_of(code) + "\r\n";
  reply += "Content-Type: " + std::string(type) + "\r\n";
  reply += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  if (code == 405) reply += "Allow: GET, HEAD\r\n";
  reply += "Cache-Control: no-store\r\nConnection: close\r\n\r\n";
  if (!is_head) reply += body;
  return reply;
}

}  // namespace lockstep
