// An HTTP/1.1 server around libevent's evhttp: one thread, any number of connections, replies from any thread.
#pragma once

#include "cluster/net/socket.hpp"
#include "serve/connection_table.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct RestRequest {
  std::string_view method;  ///< GET, HEAD or POST; empty: another one
  std::string_view path;    ///< without the query
  std::string_view body;
  std::string_view client = {};                  ///< its address
  const ConnectionTable* connections = nullptr;  ///< of the server
};

struct RestReply {
  int code = 200;
  std::string type = "application/json";
  std::string body = {};
};

struct HttpLimits {
  std::size_t max_body_bytes = std::size_t{16} << 20U;  ///< of a request; more is answered with 413
  ConnectionLimits connections = {};
};

class HttpServer {
 public:
  /// Answers a request that was not answered at once. Called once, by any thread.
  using Answer = std::function<void(RestReply reply)>;
  /// Returns the reply, or nothing if `answer` will be called. What `request` views lives during the call.
  using Handler = std::function<std::optional<RestReply>(const RestRequest& request, const Answer& answer)>;

  /// Throws InternalError if libevent fails.
  HttpServer(const Socket& listener, Handler handler, const HttpLimits& limits);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Serves until stop(). Then takes no new connections, and returns when all requests are answered and the answers are
  /// sent. Clients that do not read them are waited for as long as a request may take.
  void run();

  /// Any thread may call it.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
