// What ranks do about something that may fail on some of them only: they learn of it together, and go on alike.
#pragma once

#include "collective/communicator.hpp"

#include <cstddef>
#include <optional>
#include <string>

namespace lockstep {

struct RankProblem {
  std::size_t rank = 0;
  std::string what;
};

/// Collective: the problem of the first rank that has one. `own`: this rank's; empty if it has none.
[[nodiscard]] std::optional<RankProblem> first_problem(Communicator& communicator, const std::string& own);

}  // namespace lockstep
