// Sockets with an owner, for programs that wait in one poll(): all of them are non-blocking, closed on exec, send what
// they are given at once, and report a peer that is gone instead of raising SIGPIPE. What blocks takes a deadline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "cluster/deadline.hpp"
#include "cluster/endpoint.hpp"

namespace lockstep {

/// Owns a file descriptor. May be empty.
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

/// Accepts on all interfaces and both versions of IP, as TensorFlow's servers do; on port 0 the kernel chooses one.
/// Throws UsageError where the port is taken or forbidden; `setting` is how the sentence says where to set it.
[[nodiscard]] Socket listen_on(std::uint16_t port, int backlog = SOMAXCONN, const char* setting = "in TF_CONFIG");

[[nodiscard]] std::uint16_t port_of(const Socket& socket);

/// The IP address at this end of a connection; empty where it cannot be told.
[[nodiscard]] std::string local_address_of(const Socket& socket);

struct Accepted {
  Socket socket;
  Endpoint peer;
};

/// Nothing where nobody waits to be let in.
[[nodiscard]] std::optional<Accepted> accept_one(const Socket& listener);

/// `error` is 0 where the connection stands, else the errno that tells why not.
struct Connecting {
  Socket socket;
  int error = 0;
};

/// EINPROGRESS while it is not decided: the socket polls as writable (POLLOUT) when it is, and finish_connect() tells.
[[nodiscard]] Connecting begin_connect(const Endpoint& endpoint);
[[nodiscard]] int finish_connect(const Socket& socket);

/// ETIMEDOUT where the deadline passes first.
[[nodiscard]] Connecting connect_to(const Endpoint& endpoint, Deadline deadline);

/// Waits for POLLIN or POLLOUT (or for the peer's end). False where the deadline passes first.
[[nodiscard]] bool wait_for(const Socket& socket, short events, Deadline deadline);

enum class TransferEnd {
  done,     ///< all bytes went
  waiting,  ///< the others cannot go now: poll
  closed,   ///< the peer ended the connection, or it broke
  late,     ///< the deadline passed
};

struct Transfer {
  std::size_t bytes = 0;  ///< that did go
  TransferEnd end = TransferEnd::done;
  int error = 0;  ///< with `closed`, the errno of a connection that broke
};

/// As much as goes without waiting.
[[nodiscard]] Transfer send_some(const Socket& socket, std::span<const std::byte> bytes);
[[nodiscard]] Transfer receive_some(const Socket& socket, std::span<std::byte> bytes);

/// All of it, waiting where it takes that.
[[nodiscard]] Transfer send_all(const Socket& socket, std::span<const std::byte> bytes, Deadline deadline);
[[nodiscard]] Transfer receive_all(const Socket& socket, std::span<std::byte> bytes, Deadline deadline);

}  // namespace lockstep
