// Resolves host names with a deadline. getaddrinfo() has no timeout, so it runs in detached threads; a thread that
// finishes late discards its result. Afterwards the process may have threads, so a fork() must be followed by exec().
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/net/address.hpp"
#include "cluster/net/endpoint.hpp"
#include "core/deadline.hpp"

namespace lockstep {

enum class NameState {
  found,
  unknown,    ///< the name service reports that the name does not exist (yet)
  no_answer,  ///< the name service failed or timed out
};

struct Resolution {
  NameState state = NameState::no_answer;
  std::vector<Endpoint> endpoints;  ///< in order of preference; not empty if `found`
  std::string problem;              ///< error text of the name service; empty if `found`
};

/// Resolves all addresses concurrently. IP addresses resolve at once, without a thread.
[[nodiscard]] std::vector<Resolution> resolve(std::span<const Address> addresses, Deadline deadline);

[[nodiscard]] Resolution resolve(const Address& address, Deadline deadline);

}  // namespace lockstep
