// See socket.hpp.
#include "cluster/net/socket.hpp"

#include "core/parse_number.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

namespace lockstep {

namespace {

std::string text_of(int error) { return std::generic_category().message(error); }

[[noreturn]] void fail(const char* call, int error) {
  throw InternalError(fmt::format("{} failed: {}", call, text_of(error)));
}

/// Empty if the kernel does not support the address family.
Socket make_socket(int family) {
  Socket socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket && errno != EAFNOSUPPORT) fail("socket", errno);
  return socket;
}

void set_option(const Socket& socket, int level, int name, int value, const char* what) {
  if (setsockopt(socket.descriptor(), level, name, &value, sizeof value) != 0) fail(what, errno);
}

/// Disables Nagle's algorithm: messages are short and the peer waits for them. Fails harmlessly on sockets other than
/// TCP.
void set_no_delay(const Socket& socket) {
  const int on = 1;
  (void)setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

enum class Interfaces { all, loopback };

/// The wildcard or the loopback address of the family.
Endpoint listening_endpoint(Interfaces interfaces, int family, std::uint16_t port) {
  Endpoint endpoint;
  if (family == AF_INET6) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = interfaces == Interfaces::all ? in6addr_any : in6addr_loopback;
    address.sin6_port = htons(port);
    std::memcpy(&endpoint.storage, &address, sizeof address);
    endpoint.length = sizeof address;
  } else {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(interfaces == Interfaces::all ? INADDR_ANY : INADDR_LOOPBACK);
    address.sin_port = htons(port);
    std::memcpy(&endpoint.storage, &address, sizeof address);
    endpoint.length = sizeof address;
  }
  return endpoint;
}

/// Returns 0, or the errno of the failed call.
int bind_and_listen(const Socket& socket, const Endpoint& address, int backlog) {
  // Connections of a previous process may keep the port in TIME_WAIT.
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1, "setsockopt(SO_REUSEADDR)");
  if (address.storage.ss_family == AF_INET6)
    set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0, "setsockopt(IPV6_V6ONLY)");
  if (bind(socket.descriptor(), address.get(), address.length) != 0) return errno;
  return listen(socket.descriptor(), backlog) == 0 ? 0 : errno;
}

/// The IP address of one end of a connection, by getsockname() or getpeername(); "" if there is none.
template <typename Name>
std::string address_of(const Socket& socket, Name name) {
  Endpoint end;
  end.length = sizeof end.storage;
  if (name(socket.descriptor(), reinterpret_cast<sockaddr*>(&end.storage), &end.length) != 0) return "";
  std::string text = end.to_string();
  text.resize(text.rfind(':'));  // drop the port
  return text.front() == '[' ? text.substr(1, text.size() - 2) : text;
}

bool would_wait(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

/// True if the errno is about the connection, false if it means a bug in this program.
bool is_of_connection(int error) {
  return error != EBADF && error != ENOTSOCK && error != EFAULT && error != EINVAL && error != ENOTCONN;
}

/// Calls `call`, which transfers by a msghdr, until all parts are complete or it would block.
template <typename Byte, typename Call>
Transfer transfer_parts(std::span<std::span<Byte>> parts, const char* name, const Call& call) {
  Transfer result;
  while (true) {
    while (!parts.empty() && parts.front().empty()) parts = parts.subspan(1);
    if (parts.empty()) return result;
    std::array<iovec, 8> entries{};
    const std::size_t count = std::min(parts.size(), entries.size());
    for (std::size_t i = 0; i < count; ++i) {
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): sendmsg() only reads
      entries[i] = {const_cast<std::byte*>(parts[i].data()), parts[i].size()};
    }
    msghdr message{};
    message.msg_iov = entries.data();
    message.msg_iovlen = count;
    const ssize_t transferred = call(message);
    if (transferred > 0) {
      auto rest = static_cast<std::size_t>(transferred);
      result.bytes += rest;
      for (std::size_t i = 0; rest > 0; ++i) {
        const std::size_t bytes = std::min(rest, parts[i].size());
        parts[i] = parts[i].subspan(bytes);
        rest -= bytes;
      }
    } else if (transferred == 0) {
      result.end = TransferEnd::closed;
      return result;
    } else if (errno != EINTR) {
      const int error = errno;
      if (!is_of_connection(error)) fail(name, error);
      result.end = would_wait(error) ? TransferEnd::would_block : TransferEnd::closed;
      result.error = would_wait(error) ? 0 : error;
      return result;
    }
  }
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

void Socket::close() noexcept {
  // Linux releases the descriptor even if close() reports an error.
  if (descriptor_ >= 0) (void)::close(descriptor_);
  descriptor_ = -1;
}

namespace {

/// Listens on the first of the families that the host has.
Socket listen_on(Interfaces interfaces, std::array<int, 2> families, std::uint16_t port, int backlog,
                 const char* setting) {
  int error = EAFNOSUPPORT;
  for (const int family : families) {
    Socket socket = make_socket(family);
    if (!socket) continue;
    error = bind_and_listen(socket, listening_endpoint(interfaces, family, port), backlog);
    if (error == 0) return socket;
    if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT) break;
  }
  if (error == EADDRINUSE) {
    throw PeerError(  // a predecessor may still be leaving
        fmt::format("cannot listen on port {}: it is already in use; stop the other program, or choose another port {}",
                    port, setting));
  }
  if (error == EACCES) {
    throw UsageError(
        fmt::format("cannot listen on port {}: permission denied; choose a port above 1023 {}", port, setting));
  }
  throw InternalError(fmt::format("cannot listen on port {}: {}", port, text_of(error)));
}

}  // namespace

Socket listen_on(std::uint16_t port, int backlog, const char* setting) {
  // IPv6's wildcard address serves both families, but some hosts disable IPv6.
  return listen_on(Interfaces::all, {AF_INET6, AF_INET}, port, backlog, setting);
}

Socket listen_on_loopback(std::uint16_t port) {
  return listen_on(Interfaces::loopback, {AF_INET, AF_INET6}, port, SOMAXCONN, "in TF_CONFIG");
}

std::uint16_t port_of(const Socket& listener) {
  Endpoint own;
  own.length = sizeof own.storage;
  if (getsockname(listener.descriptor(), reinterpret_cast<sockaddr*>(&own.storage), &own.length) != 0) return 0;
  const std::string text = own.to_string();
  return parse_number<std::uint16_t>(std::string_view(text).substr(text.rfind(':') + 1)).value_or(0);
}

std::uint16_t free_port() { return port_of(listen_on(0)); }

std::string local_address_of(const Socket& socket) { return address_of(socket, &getsockname); }

std::string peer_address_of(const Socket& socket) { return address_of(socket, &getpeername); }

std::optional<Accepted> accept_one(const Socket& listener) {
  Endpoint peer;
  peer.length = sizeof peer.storage;
  Socket socket(accept4(listener.descriptor(), reinterpret_cast<sockaddr*>(&peer.storage), &peer.length,
                        SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) {
    const int error = errno;
    // accept4() also reports errors of a connection that broke while it was pending.
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM || !is_of_connection(error)) {
      fail("accept4", error);
    }
    return {};
  }
  set_no_delay(socket);
  return Accepted{std::move(socket), peer};
}

ConnectAttempt begin_connect(const Endpoint& endpoint) {
  ConnectAttempt result{make_socket(endpoint.storage.ss_family), 0};
  if (!result.socket) {
    result.error = EAFNOSUPPORT;
    return result;
  }
  set_no_delay(result.socket);
  if (connect(result.socket.descriptor(), endpoint.get(), endpoint.length) != 0) {
    result.error = errno == EINTR ? EINPROGRESS : errno;  // an interrupted connect() continues in the background
  }
  return result;
}

int finish_connect(const Socket& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) fail("getsockopt", errno);
  return error;
}

bool wait_for(const Socket& socket, short events, Deadline deadline) {
  pollfd entry{socket.descriptor(), events, 0};
  while (true) {
    const int ready = poll(&entry, 1, deadline.poll_timeout());
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail("poll", errno);
    if (deadline.passed()) return false;
  }
}

Transfer send_some(const Socket& socket, std::span<const std::byte> bytes) { return send_parts(socket, {&bytes, 1}); }

Transfer receive_some(const Socket& socket, std::span<std::byte> bytes) { return receive_parts(socket, {&bytes, 1}); }

Transfer send_parts(const Socket& socket, std::span<std::span<const std::byte>> parts) {
  return transfer_parts(parts, "sendmsg",
                        [&](const msghdr& message) { return sendmsg(socket.descriptor(), &message, MSG_NOSIGNAL); });
}

Transfer receive_parts(const Socket& socket, std::span<std::span<std::byte>> parts) {
  return transfer_parts(parts, "recvmsg", [&](msghdr& message) { return recvmsg(socket.descriptor(), &message, 0); });
}

Transfer send_all(const Socket& socket, std::span<const std::byte> bytes, Deadline deadline) {
  Transfer all;
  while (true) {
    const Transfer some = send_some(socket, bytes.subspan(all.bytes));
    all = {all.bytes + some.bytes, some.end, some.error};
    if (some.end != TransferEnd::would_block) return all;
    if (!wait_for(socket, POLLOUT, deadline)) {
      all.end = TransferEnd::timed_out;
      return all;
    }
  }
}

}  // namespace lockstep
