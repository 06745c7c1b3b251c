// See first_problem.hpp.
#include "collective/first_problem.hpp"

#include <utility>
#include <vector>

namespace lockstep {

std::optional<RankProblem> first_problem(Communicator& communicator, const std::string& own) {
  std::vector<std::string> problems = communicator.all_gather(own);
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    if (!problems[rank].empty()) return RankProblem{rank, std::move(problems[rank])};
  }
  return std::nullopt;
}

}  // namespace lockstep
