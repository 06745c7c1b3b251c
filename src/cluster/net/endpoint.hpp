// A resolved address: an IPv4 or IPv6 address and a port.
#pragma once

#include <sys/socket.h>

#include <string>

namespace lockstep {

struct Endpoint {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }

  /// "10.0.0.7:5000", "[fd00::7]:5000".
  [[nodiscard]] std::string to_string() const;
};

}  // namespace lockstep
