// See pmix_port_guard.hpp. This file defines accept(): a definition in the program precedes that of the C library for
// PMIx too.
#include "cluster/pmix/pmix_port_guard.hpp"

#include "cluster/net/endpoint.hpp"
#include "cluster/net/source_filter.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep {

namespace {

std::atomic<bool>& is_guarded() {
  static std::atomic<bool> guarded = false;
  return guarded;
}

/// The IPv4 address and port as /proc/net/tcp writes them: "0100007F:1388".
std::string name_in_table(const sockaddr_storage& address) {
  sockaddr_in four{};
  std::memcpy(&four, &address, sizeof four);
  return fmt::format("{:08X}:{:04X}", four.sin_addr.s_addr, ntohs(four.sin_port));
}

/// Whether the other end of a connection within this machine belongs to a process of this user.
bool is_peer_own_user(int connection) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t size = sizeof own;
  if (getsockname(connection, reinterpret_cast<sockaddr*>(&own), &size) != 0) return false;
  size = sizeof peer;
  if (getpeername(connection, reinterpret_cast<sockaddr*>(&peer), &size) != 0 || peer.ss_family != AF_INET)
    return false;
  std::ifstream table("/proc/self/net/tcp");
  if (!table) return true;  // a sandbox without the table
  const std::string wanted = name_in_table(peer) + " " + name_in_table(own) + " ";
  for (std::string line; std::getline(table, line);) {
    if (line.find(wanted) == std::string::npos) continue;
    std::istringstream fields(line);
    std::string skipped;
    for (int i = 0; i < 7; ++i) fields >> skipped;  // number, addresses, state, queues, timer, retransmissions
    std::uint64_t user = 0;
    return (fields >> user) && user == geteuid();
  }
  return false;
}

}  // namespace

void accept_only_own_user() { is_guarded() = true; }

void close_own_ports() noexcept {
  try {
    std::vector<sock_filter> nobody = make_source_filter({});
    for (const int listener : own_tcp_listeners()) (void)attach_filter(listener, nobody);
  } catch (...) {  // out of memory: the ports stay open to this user
  }
}

}  // namespace lockstep

// The system header uses reserved names.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name)
extern "C" int accept(int listener, sockaddr* address, socklen_t* length) {
  const auto connection = static_cast<int>(syscall(SYS_accept, listener, address, length));
  if (connection < 0 || !lockstep::is_guarded()) return connection;
  try {
    if (lockstep::is_peer_own_user(connection)) return connection;
  } catch (...) {  // out of memory: the peer tries again
  }
  (void)close(connection);
  errno = ECONNABORTED;  // PMIx goes on to the next connection
  return -1;
}
