// Host names to IP addresses by a deadline. The C library's own look-up takes as long as it likes, so it runs in
// threads of which none is waited for longer than that: one that comes too late ends by itself, and touches nothing
// that anybody else has. (Who forks must execute another program then, as in every process with threads.)
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/address.hpp"
#include "cluster/deadline.hpp"
#include "cluster/endpoint.hpp"

namespace lockstep {

enum class NameState {
  found,
  unknown,    ///< the name service says that there is no such name (yet)
  no_answer,  ///< the name service failed, or was silent
};

struct Resolution {
  NameState state = NameState::no_answer;
  std::vector<Endpoint> endpoints;  ///< in the order in which they should be tried; some where `found`
  std::string problem;              ///< in the name service's words where not
};

/// All at once. IP addresses need no name service, and no time.
[[nodiscard]] std::vector<Resolution> resolve(std::span<const Address> addresses, Deadline deadline);

[[nodiscard]] Resolution resolve(const Address& address, Deadline deadline);

}  // namespace lockstep
