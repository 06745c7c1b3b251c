// Answers GET and HEAD on a launcher's status port, within the launcher's poll() loop. Each connection carries one
// request and has a deadline; when there are too many connections, the oldest is closed.
//
// Lockstep uses no HTTP library here because it needs only the path of a request. libmicrohttpd, which fits a
// single-threaded poll() loop and is in Debian 12 and 13, would bring GnuTLS into a process that holds the job token.
// It also limits only the idle time of a connection: a client that sends one byte every few seconds could hold one
// forever.
#pragma once

#include <poll.h>

#include <cstddef>
#include <functional>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "cluster/net/socket.hpp"
#include "core/deadline.hpp"

namespace lockstep {

struct StatusReply {
  int code = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

class StatusServer {
 public:
  /// `answer` returns the response for a path (404 for an unknown one). `limit_s`: seconds until a connection is
  /// closed.
  StatusServer(Socket listener, std::function<StatusReply(const std::string& path)> answer, double limit_s = 5);

  /// Appends the descriptors that poll() should wait for.
  void collect(std::vector<pollfd>& polled);
  /// Handles the events of the entries that the last collect() appended; `polled` may hold others.
  void handle(std::span<const pollfd> polled);

  [[nodiscard]] std::size_t num_clients() const noexcept { return clients_.size(); }

 private:
  struct Client {
    Socket socket;
    double since = 0;
    Deadline deadline;
    std::string request_bytes;
    std::string reply;  ///< empty until the request is complete
    std::size_t sent = 0;
    bool is_reply_sent = false;  ///< completely
    std::size_t ignored = 0;     ///< bytes received after the reply
  };

  void accept_some();
  /// Returns false if the client is to be removed.
  [[nodiscard]] bool serve(Client& client);
  [[nodiscard]] std::string reply_to(const std::string& request_bytes) const;

  Socket listener_;
  std::function<StatusReply(const std::string& path)> answer_;
  double limit_s_;
  std::list<Client> clients_;   ///< oldest first
  double no_accept_until_ = 0;  ///< after accept() ran out of descriptors
  std::size_t polled_from_ = 0;
};

}  // namespace lockstep
