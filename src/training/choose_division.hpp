// Whether, and how, a run divides a model by features: what was asked for, or what measuring says is faster.
#pragma once

#include "plan/cost.hpp"
#include "plan/division.hpp"
#include "training/runtime.hpp"

#include <lockstep/nn/optimizers.hpp>

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Not by examples only where that promises so much: measurements waver, and by examples is what has no surprises.
inline constexpr double least_gain = 0.05;

struct DivisionChoice {
  std::optional<FeatureDivision> division = {};  ///< none: by examples
  std::string why = {};                          ///< a clause: "features were asked for"
  /// Seconds that a step was predicted to take, by `name_of` each division that is possible; empty where nobody asked.
  std::map<std::string, double> predicted = {};
  LinkTimes link = {};  ///< measured; empty where it was not
};

/// "examples", "features", or "none" where every worker computes all.
[[nodiscard]] std::string name_of(const std::optional<FeatureDivision>& division);

/// What --division says of a model that is lowered but not laid out; `replicas` are the job's. With auto kernels and
/// links are measured, or, where the run is to be deterministic, estimated by rules; another division than by examples
/// must promise 5 % to be taken. The chief's choice is everybody's. Collective. Throws UsageError where features are
/// asked for and cannot be had.
[[nodiscard]] DivisionChoice choose_division(Runtime& runtime, const Graph& graph, const Optimizer& optimizer,
                                             std::size_t replicas);

/// A step as it is predicted for so many workers.
struct StepPrediction {
  int workers = 1;
  std::optional<FeatureDivision> division;
  double compute = 0;        ///< seconds
  double communication = 0;  ///< seconds that nothing is computed in
  [[nodiscard]] double seconds() const noexcept { return compute + communication; }
};

/// Which of the predictions auto takes; the first is by examples.
[[nodiscard]] std::size_t best_of(const std::vector<double>& seconds);

/// By examples, then, where the model can be divided so, by features, and last not divided at all: each for `workers`
/// on hosts of their own, joined by such a link. Kernels are measured on this machine.
[[nodiscard]] std::vector<StepPrediction> predict_steps(const Backend& backend, const Graph& graph,
                                                        const Optimizer& optimizer, std::size_t batch, int workers,
                                                        double latency, double bytes_per_second);

}  // namespace lockstep
