// A minimal HTTP/1 parser for the status port: it reads the request line of an untrusted client and skips the headers.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct HttpRequest {
  std::string method;
  std::string path;  ///< without the query string
};

/// The largest request, including its headers.
constexpr std::size_t max_http_request_bytes = 4096;

/// Parses a request; nullopt until the empty line after the headers has arrived. Throws DataError as soon as the bytes
/// cannot be a request.
[[nodiscard]] std::optional<HttpRequest> read_http_request(std::string_view bytes);

/// The complete response, after which the connection closes; without the body for HEAD.
[[nodiscard]] std::string http_reply(int code, std::string_view type, std::string_view body, bool is_head);

}  // namespace lockstep
