// See endpoint.hpp.
#include "cluster/net/endpoint.hpp"

#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <string_view>

namespace lockstep {

std::string Endpoint::to_string() const {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (getnameinfo(get(), length, host.data(), host.size(), port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) !=
      0) {
    return "an unknown address";
  }
  const std::string name = host.data();
  constexpr std::string_view mapped = "::ffff:";  // an IPv4 peer on a dual-stack socket
  if (name.starts_with(mapped) && name.find('.') != std::string::npos) {
    return name.substr(mapped.size()) + ":" + port.data();
  }
  return (storage.ss_family == AF_INET6 ? "[" + name + "]" : name) + ":" + port.data();
}

}  // namespace lockstep
