// Blocking calls on sockets, for tests.
#pragma once

#include "cluster/net/socket.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// Connects and waits; the error is ETIMEDOUT if the deadline passes.
[[nodiscard]] inline ConnectAttempt connect_to(const Endpoint& endpoint, Deadline deadline) {
  ConnectAttempt result = begin_connect(endpoint);
  if (result.error != EINPROGRESS) return result;
  result.error = wait_for(result.socket, POLLOUT, deadline) ? finish_connect(result.socket) : ETIMEDOUT;
  return result;
}

/// Receives everything, blocking until the deadline.
[[nodiscard]] inline Transfer receive_all(const Socket& socket, std::span<std::byte> bytes, Deadline deadline) {
  Transfer all;
  while (true) {
    const Transfer some = receive_some(socket, bytes.subspan(all.bytes));
    all = {all.bytes + some.bytes, some.end, some.error};
    if (some.end != TransferEnd::would_block) return all;
    if (wait_for(socket, POLLIN, deadline)) continue;
    all.end = TransferEnd::timed_out;
    return all;
  }
}

}  // namespace lockstep
