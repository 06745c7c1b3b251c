// Chooses among the ways to compute an operation: a library's algorithms, with and without a fused epilogue, and
// Lockstep's own kernels. Candidates are timed on random data when the kernels are made, and the fastest is remembered:
// timing takes milliseconds, and the same problem occurs again in other layers and when a model is recompiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::cuda {

class Kernel;
struct KernelScope;

/// Everything that the choice depends on besides the kind of operation. The caller defines the order.
using ProblemKey = std::vector<std::int64_t>;

/// One way to compute an operation. Its name is its kernel's implementation().
struct Candidate {
  /// Its kernel, also of another operation with the same ProblemKey. Throws Error if it does not support the problem.
  std::function<std::unique_ptr<Kernel>(const KernelScope&)> make;
  std::size_t workspace = 0;     ///< bytes of CudaContext::workspace that it needs
  bool is_deterministic = true;  ///< sums in a fixed order
  std::string last_resort = {};  ///< the warning to log if no other candidate works
};

/// The candidates chosen so far.
class AlgorithmCache {
 public:
  /// Returns the choice for a problem; calls `choose()` the first time only.
  template <typename Choose>
  [[nodiscard]] const Candidate& get_or_choose(const ProblemKey& problem, Choose choose) {
    const auto known = choices_.find(problem);
    if (known != choices_.end()) return known->second;
    return choices_.emplace(problem, choose()).first->second;
  }

 private:
  std::map<ProblemKey, Candidate> choices_;
};

/// Makes the kernel of the fastest candidate. Candidates that fail are left out; of those that cannot be captured into
/// a graph, or where memory is short, the first that runs is taken. In deterministic runs nothing is timed: the first
/// deterministic candidate that runs is taken. `list` is called only if the problem is new. Throws InternalError if no
/// candidate works. Nothing may be in flight on the device, and the operation's tensors may be overwritten.
[[nodiscard]] std::unique_ptr<Kernel> make_fastest(const KernelScope& scope, const ProblemKey& problem,
                                                   const std::function<std::vector<Candidate>()>& list);

}  // namespace lockstep::cuda
