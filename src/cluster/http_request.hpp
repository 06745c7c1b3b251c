// What is asked of a launcher's status port: the first line of an HTTP/1 request, from whoever reaches the port. What
// follows that line is of no interest here, so it is passed over and not understood.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct HttpRequest {
  std::string method;
  std::string path;  ///< without what follows a question mark
};

/// Requests' lines and headers together have at most so many bytes.
constexpr std::size_t longest_http_request = 4096;

/// Nothing while more must come: all up to the empty line. Throws DataError as soon as it is plain that this is no
/// request.
[[nodiscard]] std::optional<HttpRequest> read_http_request(std::string_view bytes);

/// The whole answer, after which the connection ends. For HEAD without the body.
[[nodiscard]] std::string http_reply(int code, std::string_view type, std::string_view body, bool is_head);

}  // namespace lockstep
