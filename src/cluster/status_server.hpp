// Answers GET (and HEAD) on a launcher's status port, inside of the launcher's poll(): one request a connection, a
// limited number of connections for a limited time. Where more come than there is room for, the oldest goes; whoever
// means it has its answer by then.
//
// No library: what is asked for is a path, in a request without a body, and that is a line. libmicrohttpd, the one that
// fits a poll() of one thread and is in both Debian releases, brings GnuTLS into a process that holds the job's secret,
// and limits only how long a connection is idle: a byte every few seconds would hold a place for ever.
#pragma once

#include <poll.h>

#include <cstddef>
#include <functional>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "cluster/deadline.hpp"
#include "cluster/socket.hpp"

namespace lockstep {

struct StatusReply {
  int code = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

class StatusServer {
 public:
  /// `answer`: what a path holds; 404 where there is none of that name.
  StatusServer(Socket listener, std::function<StatusReply(const std::string& path)> answer, double limit_s = 5);

  /// Appends what poll() should wait for.
  void collect(std::vector<pollfd>& polled);
  /// Serves what poll() found, in what collect() appended last; `polled` may hold more.
  void handle(std::span<const pollfd> polled);

  [[nodiscard]] std::size_t visitors() const noexcept { return visitors_.size(); }

 private:
  struct Visitor {
    Socket socket;
    double since = 0;
    Deadline deadline;
    std::string asked;
    std::string reply;  ///< empty until it is known
    std::size_t sent = 0;
    bool was_told = false;    ///< all of it
    std::size_t ignored = 0;  ///< bytes that came after that
  };

  void accept_some();
  /// False where it is done with.
  [[nodiscard]] bool serve(Visitor& visitor);
  [[nodiscard]] std::string reply_to(const std::string& asked) const;

  Socket listener_;
  std::function<StatusReply(const std::string& path)> answer_;
  double limit_s_;
  std::list<Visitor> visitors_;  ///< the oldest first
  double no_accept_until_ = 0;   ///< the system has no descriptor to give
  std::size_t polled_from_ = 0;
};

}  // namespace lockstep
