// See socket.hpp.
#include "cluster/socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <system_error>

#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

std::string text_of(int error) { return std::generic_category().message(error); }

[[noreturn]] void fail(const char* call, int error) {
  throw InternalError(std::string(call) + " failed: " + text_of(error));
}

/// Empty where the kernel does not know this family.
Socket make_socket(int family) {
  Socket socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket && errno != EAFNOSUPPORT) fail("socket", errno);
  return socket;
}

void set_option(const Socket& socket, int level, int name, int value, const char* what) {
  if (setsockopt(socket.descriptor(), level, name, &value, sizeof value) != 0) fail(what, errno);
}

/// What is sent here are short messages that somebody waits for. On other than TCP there is nothing to set.
void send_at_once(const Socket& socket) {
  const int on = 1;
  (void)setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// Any address of the family.
Endpoint any_of(int family, std::uint16_t port) {
  Endpoint endpoint;
  if (family == AF_INET6) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    address.sin6_port = htons(port);
    std::memcpy(&endpoint.storage, &address, sizeof address);
    endpoint.length = sizeof address;
  } else {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(port);
    std::memcpy(&endpoint.storage, &address, sizeof address);
    endpoint.length = sizeof address;
  }
  return endpoint;
}

/// 0, or the errno of what failed.
int bind_and_listen(const Socket& socket, int family, std::uint16_t port, int backlog) {
  // The connections of a program that has just ended keep its port in TIME_WAIT: they shall not keep out its successor.
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1, "setsockopt(SO_REUSEADDR)");
  if (family == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0, "setsockopt(IPV6_V6ONLY)");
  const Endpoint any = any_of(family, port);
  if (bind(socket.descriptor(), any.get(), any.length) != 0) return errno;
  return listen(socket.descriptor(), backlog) == 0 ? 0 : errno;
}

bool would_wait(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

/// Does the errno tell of the connection, not of a mistake of ours?
bool is_of_connection(int error) {
  return error != EBADF && error != ENOTSOCK && error != EFAULT && error != EINVAL && error != ENOTCONN;
}

/// Calls `transfer_some` with what is left, and waits between the calls.
template <typename Bytes, typename TransferSome>
Transfer transfer_all(const Socket& socket, Bytes bytes, short events, Deadline deadline, TransferSome transfer_some) {
  Transfer all;
  while (true) {
    const Transfer some = transfer_some(socket, bytes.subspan(all.bytes));
    all = {all.bytes + some.bytes, some.end, some.error};
    if (some.end != TransferEnd::waiting) return all;
    if (!wait_for(socket, events, deadline)) {
      all.end = TransferEnd::late;
      return all;
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
  // Whatever close() says, Linux has let go of the descriptor.
  if (descriptor_ >= 0) (void)::close(descriptor_);
  descriptor_ = -1;
}

Socket listen_on(std::uint16_t port, int backlog, const char* setting) {
  int error = EAFNOSUPPORT;
  for (const int family : {AF_INET6, AF_INET}) {  // the first serves both, but some hosts have it switched off
    Socket socket = make_socket(family);
    if (!socket) continue;
    error = bind_and_listen(socket, family, port, backlog);
    if (error == 0) return socket;
    if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT) break;
  }
  const std::string where = "cannot listen on port " + std::to_string(port) + ": ";
  if (error == EADDRINUSE) {
    throw UsageError(where + "another program has it; end that program, or give this task another port " + setting);
  }
  if (error == EACCES) {
    throw UsageError(where + "this user may not; give this task a port above 1023 " + setting);
  }
  throw InternalError(where + text_of(error));
}

std::string local_address_of(const Socket& socket) {
  Endpoint own;
  own.length = sizeof own.storage;
  if (getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&own.storage), &own.length) != 0) return "";
  std::string text = own.to_string();
  text.resize(text.rfind(':'));  // without the port
  return text.front() == '[' ? text.substr(1, text.size() - 2) : text;
}

std::uint16_t port_of(const Socket& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) fail("getsockname", errno);
  sockaddr_in6 six{};
  sockaddr_in four{};
  std::memcpy(&six, &storage, sizeof six);
  std::memcpy(&four, &storage, sizeof four);
  return ntohs(storage.ss_family == AF_INET6 ? six.sin6_port : four.sin_port);
}

std::optional<Accepted> accept_one(const Socket& listener) {
  Endpoint peer;
  peer.length = sizeof peer.storage;
  Socket socket(accept4(listener.descriptor(), reinterpret_cast<sockaddr*>(&peer.storage), &peer.length,
                        SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) {
    const int error = errno;
    // A connection that has broken while it waited reports what happened to it here.
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM || !is_of_connection(error)) {
      fail("accept4", error);
    }
    return {};
  }
  send_at_once(socket);
  return Accepted{std::move(socket), peer};
}

Connecting begin_connect(const Endpoint& endpoint) {
  Connecting result{make_socket(endpoint.storage.ss_family), 0};
  if (!result.socket) {
    result.error = EAFNOSUPPORT;
    return result;
  }
  send_at_once(result.socket);
  if (connect(result.socket.descriptor(), endpoint.get(), endpoint.length) != 0) {
    result.error = errno == EINTR ? EINPROGRESS : errno;  // interrupted, it goes on by itself
  }
  return result;
}

int finish_connect(const Socket& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) fail("getsockopt", errno);
  return error;
}

Connecting connect_to(const Endpoint& endpoint, Deadline deadline) {
  Connecting result = begin_connect(endpoint);
  if (result.error != EINPROGRESS) return result;
  result.error = wait_for(result.socket, POLLOUT, deadline) ? finish_connect(result.socket) : ETIMEDOUT;
  return result;
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

Transfer send_some(const Socket& socket, std::span<const std::byte> bytes) {
  Transfer result;
  while (result.bytes < bytes.size()) {
    const std::span<const std::byte> rest = bytes.subspan(result.bytes);
    const ssize_t sent = send(socket.descriptor(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      result.bytes += static_cast<std::size_t>(sent);
    } else if (errno != EINTR) {
      const int error = errno;
      if (!is_of_connection(error)) fail("send", error);
      result.end = would_wait(error) ? TransferEnd::waiting : TransferEnd::closed;
      result.error = would_wait(error) ? 0 : error;
      break;
    }
  }
  return result;
}

Transfer receive_some(const Socket& socket, std::span<std::byte> bytes) {
  Transfer result;
  while (result.bytes < bytes.size()) {
    const std::span<std::byte> rest = bytes.subspan(result.bytes);
    const ssize_t received = recv(socket.descriptor(), rest.data(), rest.size(), 0);
    if (received > 0) {
      result.bytes += static_cast<std::size_t>(received);
    } else if (received == 0) {
      result.end = TransferEnd::closed;
      break;
    } else if (errno != EINTR) {
      const int error = errno;
      if (!is_of_connection(error)) fail("recv", error);
      result.end = would_wait(error) ? TransferEnd::waiting : TransferEnd::closed;
      result.error = would_wait(error) ? 0 : error;
      break;
    }
  }
  return result;
}

Transfer send_all(const Socket& socket, std::span<const std::byte> bytes, Deadline deadline) {
  return transfer_all(socket, bytes, POLLOUT, deadline, send_some);
}

Transfer receive_all(const Socket& socket, std::span<std::byte> bytes, Deadline deadline) {
  return transfer_all(socket, bytes, POLLIN, deadline, receive_some);
}

}  // namespace lockstep
