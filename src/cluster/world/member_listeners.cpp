// See member_listeners.hpp. This file defines listen(): a definition in the program precedes that of the C library for
// all libraries, MPI's plugins included. So a socket has its filter before its first connection can arrive.
#include "cluster/world/member_listeners.hpp"

#include "cluster/net/source_filter.hpp"
#include "core/environment.hpp"
#include "core/log.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace lockstep {

namespace {

/// Returns 0, or an errno. Does nothing without the variable, and for sockets that are not TCP.
int filter_listener(int socket) {
  int protocol = 0;
  socklen_t size = sizeof protocol;
  if (getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0 || protocol != IPPROTO_TCP) return 0;
  std::istringstream text(value_of(current_environment(), member_addresses_variable));
  std::vector<std::string> addresses;
  for (std::string address; std::getline(text, address, ',');) addresses.push_back(address);
  if (addresses.empty()) return 0;
  std::vector<sock_filter> program = make_source_filter(addresses);
  return attach_filter(socket, program);
}

}  // namespace

void filter_remaining_listeners() {
  int first_error = 0;
  for (const int listener : own_tcp_listeners()) {
    if (has_filter(listener).value_or(false)) continue;
    if (const int error = filter_listener(listener); first_error == 0) first_error = error;
  }
  if (first_error == 0) return;
  log_warning(
      fmt::format("cannot close MPI's ports to unauthenticated peers ({}), any of which can block this rank; let only "
                  "the job's hosts reach them",
                  std::generic_category().message(first_error)));
}

}  // namespace lockstep

// The system header uses reserved names.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name)
extern "C" int listen(int socket, int backlog) noexcept {
  try {
    (void)lockstep::filter_listener(socket);  // filter_remaining_listeners() reports an error
  } catch (...) {                             // out of memory, or an invalid list: the same
  }
  return static_cast<int>(syscall(SYS_listen, socket, backlog));
}
