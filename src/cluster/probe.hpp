// Which peers can be reached, and why the others cannot: for a person who wonders what a world is waiting for.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/address.hpp"

namespace lockstep {

/// From what tells most of a peer to what tells least: of a host with several IP addresses the best counts.
enum class Reach {
  answers,          ///< it accepts connections
  refused,          ///< its host is there, but nothing listens on the port
  silent,           ///< no answer in time
  unreachable,      ///< no way to its host
  unknown_name,     ///< the host's name does not resolve
  no_name_service,  ///< the name service failed, or did not answer in time
};

struct Probe {
  Reach reach = Reach::no_name_service;
  std::string endpoint;  ///< the IP address and port that were tried, if any: "10.0.0.7:5000"
  double seconds = 0;    ///< until the answer
  std::string problem;   ///< the system's words, where it has any
};

/// Asks for a connection to each, all at once, and ends it as soon as it stands. Names and connections may take
/// `timeout` seconds each.
[[nodiscard]] std::vector<Probe> probe(std::span<const Address> addresses, double timeout);

}  // namespace lockstep
