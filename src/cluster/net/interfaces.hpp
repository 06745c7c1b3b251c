// The network interfaces of this host and their IP addresses.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// Whether the text is an IPv4 or IPv6 address, without a port or zone.
[[nodiscard]] bool is_ip_address(const std::string& text);

/// The name of the interface with this IP address; "" if there is none.
[[nodiscard]] std::string interface_with_address(const std::string& address);

/// The addresses from which this host's connections may come: `address` first, unless it is empty, then those of the
/// other interfaces. Loopback and link-local addresses are not listed, unless `address` is one. At most 48.
[[nodiscard]] std::vector<std::string> addresses_of_host(const std::string& address);

}  // namespace lockstep
