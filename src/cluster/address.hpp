// "host:port", as TF_CONFIG names a task's place.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

struct Address {
  std::string host;  ///< a name or an IP address, IPv6 without brackets
  std::uint16_t port = 0;

  /// "worker-0:5000", "[fd00::7]:5000".
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Address&, const Address&) = default;
};

/// Throws UsageError, whose sentence begins with `where` ("TF_CONFIG's cluster.worker[1]"), unless `text` is a host, a
/// colon and a port from 1 to 65535.
[[nodiscard]] Address parse_address(std::string_view text, const std::string& where);

}  // namespace lockstep
