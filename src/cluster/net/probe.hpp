// Tests which peers accept connections, to explain why a world is still waiting.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/net/address.hpp"

namespace lockstep {

/// Ordered from the most to the least informative result; for a host with several IP addresses the first one counts.
enum class Reachability {
  answers,          ///< it accepts connections
  refused,          ///< the host answers, but nothing listens on the port
  no_answer,        ///< the connection attempt timed out
  unreachable,      ///< no route to the host
  unknown_name,     ///< the host name does not resolve
  no_name_service,  ///< the name service failed or timed out
};

struct Probe {
  Reachability reach = Reachability::no_name_service;
  std::string endpoint;  ///< the IP address and port tried, "10.0.0.7:5000"; empty if none
  double seconds = 0;    ///< from the start of the attempt to its result
  std::string problem;   ///< error text of the system; empty if it has none
};

/// Connects to all addresses concurrently and closes each connection once it is established. Name lookup and connection
/// may each take `timeout` seconds.
[[nodiscard]] std::vector<Probe> probe(std::span<const Address> addresses, double timeout);

}  // namespace lockstep
