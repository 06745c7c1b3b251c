// See endpoint.hpp.
#include "cluster/endpoint.hpp"

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
    return "an unnamed endpoint";
  }
  const std::string name = host.data();
  constexpr std::string_view mapped = "::ffff:";  // version 4 on a socket of version 6
  if (name.starts_with(mapped) && name.find('.') != std::string::npos) {
    return name.substr(mapped.size()) + ":" + port.data();
  }
  return (storage.ss_family == AF_INET6 ? "[" + name + "]" : name) + ":" + port.data();
}

}  // namespace lockstep
