// Caches the algorithms chosen for products. Measuring one takes milliseconds, and the same problem occurs again in
// other layers and when a model is recompiled.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace lockstep::cuda {

/// Everything that the choice depends on. The caller defines the order.
using ProblemKey = std::vector<std::int64_t>;

template <typename Choice>
class AlgorithmCache {
 public:
  /// Returns the choice for a problem; calls `make()` the first time only.
  template <typename Make>
  [[nodiscard]] const Choice& get_or_choose(const ProblemKey& problem, Make make) {
    const auto known = choices_.find(problem);
    if (known != choices_.end()) return known->second;
    return choices_.emplace(problem, make()).first->second;
  }

 private:
  std::map<ProblemKey, Choice> choices_;
};

}  // namespace lockstep::cuda
