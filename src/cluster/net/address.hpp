// The address of a task in TF_CONFIG, "host:port".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

struct Address {
  std::string host;  ///< host name or IP address; IPv6 without brackets
  std::uint16_t port = 0;

  /// "worker-0:5000", "[fd00::7]:5000".
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Address&, const Address&) = default;
};

/// Parses "host:port". Throws UsageError, whose message begins with `where` ("TF_CONFIG's cluster.worker[1]"), unless
/// the host is a valid name or IP address and the port is from 1 to 65535.
[[nodiscard]] Address parse_address(std::string_view text, const std::string& where);

}  // namespace lockstep
