// What was chosen once is remembered: measuring costs a GPU milliseconds, and models meet the same problems again, in
// other layers, for batches of the same size, when they are compiled anew.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace lockstep::cuda {

/// All that a choice depends on, in an order of the asker's.
using Problem = std::vector<std::int64_t>;

template <typename Choice>
class Remembered {
 public:
  /// The choice for a problem: `make()` the first time, the same again ever after.
  template <typename Make>
  [[nodiscard]] const Choice& of(const Problem& problem, Make make) {
    const auto known = choices_.find(problem);
    if (known != choices_.end()) return known->second;
    return choices_.emplace(problem, make()).first->second;
  }

 private:
  std::map<Problem, Choice> choices_;
};

}  // namespace lockstep::cuda
