// Owning wrappers of sockets, for event loops around one poll(). All sockets are non-blocking, close-on-exec and
// TCP_NODELAY, and report a closed peer instead of raising SIGPIPE. Every blocking function takes a deadline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "cluster/net/endpoint.hpp"
#include "core/deadline.hpp"

namespace lockstep {

/// Owns a file descriptor, or none.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) noexcept : descriptor_(descriptor) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }  ///< -1 for none
  [[nodiscard]] explicit operator bool() const noexcept { return descriptor_ >= 0; }
  void close() noexcept;

 private:
  int descriptor_ = -1;
};

/// Listens on all interfaces, IPv4 and IPv6, as TensorFlow's servers do; with port 0 the kernel chooses a port. Throws
/// PeerError if the port is taken and UsageError if it is forbidden; the message names `setting` as the place to change
/// it.
[[nodiscard]] Socket listen_on(std::uint16_t port, int backlog = SOMAXCONN, const char* setting = "in TF_CONFIG");
/// Listens on the loopback address only: no other host can connect.
[[nodiscard]] Socket listen_on_loopback(std::uint16_t port);

/// The port of a listener; 0 if it is unknown.
[[nodiscard]] std::uint16_t port_of(const Socket& listener);

/// A port on which no process of this host listens now; 0 if the system has none.
[[nodiscard]] std::uint16_t free_port();

/// The local IP address of a connection; empty if it is unknown.
[[nodiscard]] std::string local_address_of(const Socket& socket);
/// The same of its other end.
[[nodiscard]] std::string peer_address_of(const Socket& socket);

struct Accepted {
  Socket socket;
  Endpoint peer;
};

/// Accepts a pending connection; nullopt if there is none.
[[nodiscard]] std::optional<Accepted> accept_one(const Socket& listener);

/// `error` is 0 if the connection is established, else an errno value.
struct ConnectAttempt {
  Socket socket;
  int error = 0;
};

/// Starts a connection. While the error is EINPROGRESS, wait for POLLOUT and then call finish_connect(), which returns
/// the final errno.
[[nodiscard]] ConnectAttempt begin_connect(const Endpoint& endpoint);
[[nodiscard]] int finish_connect(const Socket& socket);

/// Waits for `events`, or for the peer to close. Returns false if the deadline passes first.
[[nodiscard]] bool wait_for(const Socket& socket, short events, Deadline deadline);

enum class TransferEnd {
  done,         ///< all bytes were transferred
  would_block,  ///< the rest would block: poll
  closed,       ///< the peer closed the connection, or it broke
  timed_out,    ///< the deadline passed
};

struct Transfer {
  std::size_t bytes = 0;  ///< transferred
  TransferEnd end = TransferEnd::done;
  int error = 0;  ///< if `closed`: the errno of a broken connection, or 0
};

/// Transfers as much as possible without blocking.
[[nodiscard]] Transfer send_some(const Socket& socket, std::span<const std::byte> bytes);
[[nodiscard]] Transfer receive_some(const Socket& socket, std::span<std::byte> bytes);

/// The same for memory in several parts. On return the parts are what is left of them.
[[nodiscard]] Transfer send_parts(const Socket& socket, std::span<std::span<const std::byte>> parts);
[[nodiscard]] Transfer receive_parts(const Socket& socket, std::span<std::span<std::byte>> parts);

/// Sends everything, blocking until the deadline.
[[nodiscard]] Transfer send_all(const Socket& socket, std::span<const std::byte> bytes, Deadline deadline);

}  // namespace lockstep
