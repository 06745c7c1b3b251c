// Whether, and how, a run divides a model by features: what was asked for, or what measuring says is faster.
#pragma once

#include "plan/cost.hpp"
#include "plan/division.hpp"
#include "training/runtime.hpp"

#include <lockstep/nn/optimizers.hpp>

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// By features only where that promises so much: measurements waver, and by examples is what has no surprises.
inline constexpr double least_gain = 0.05;

struct DivisionChoice {
  std::optional<FeatureDivision> division = {};  ///< none: by examples
  std::string why = {};                          ///< a clause: "features were asked for"
  /// What was predicted, of the best division by features; NaN where nothing was.
  double seconds_by_features = std::numeric_limits<double>::quiet_NaN();
  double seconds_by_examples = std::numeric_limits<double>::quiet_NaN();
  LinkTimes link = {};  ///< measured; empty where it was not
};

/// What --division says of a model that is lowered but not laid out; `replicas` are the job's. With auto kernels and
/// links are measured, or, where the run is to be deterministic, estimated by rules; features must promise 5 % to be
/// taken. The chief's choice is everybody's. Collective. Throws UsageError where features are asked for and cannot be
/// had.
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

/// By examples and, where the model can be divided so, by features: both for `workers` on hosts of their own, joined by
/// such a link. Kernels are measured on this machine.
[[nodiscard]] std::vector<StepPrediction> predict_steps(const Backend& backend, const Graph& graph,
                                                        const Optimizer& optimizer, std::size_t batch, int workers,
                                                        double latency, double bytes_per_second);

}  // namespace lockstep
