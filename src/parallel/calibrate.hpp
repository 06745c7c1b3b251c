// Chooses a run's parallelism and the sharding of its model.
#pragma once

#include "backend/backend.hpp"
#include "collective/communicator.hpp"
#include "parallel/link_model.hpp"
#include "parallel/sharding.hpp"

#include <lockstep/optimizers/optimizers.hpp>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Data parallelism is chosen unless another choice is predicted to be faster by this fraction, because measurements
/// vary.
inline constexpr double min_gain = 0.05;

/// The world and the device on which a model is trained.
struct CalibrationContext {
  const Backend& backend;
  Communicator& control;                                            ///< for exchanging times and the choice
  std::function<std::unique_ptr<Communicator>()> new_communicator;  ///< creates one to time the link; collective
  std::vector<int> host_of_rank;
  std::size_t global_batch_size = 0;
  std::size_t batch_norm_replicas = 0;  ///< of all ranks
  bool deterministic = false;           ///< estimate instead of measuring
  std::string assumed_hardware;         ///< Options::assumed_hardware
  std::string sharding_code;            ///< Options::sharding
};

struct ParallelismChoice {
  std::optional<Sharding> sharding = {};  ///< none: data parallel
  std::string reason = {};                ///< a clause: "requested by --parallelism tensor"
  /// Predicted seconds per step of each possible parallelism, by `parallelism_name`; empty if the user chose one.
  std::map<std::string, double> predicted = {};
  LinkModel link = {};  ///< measured; empty if nothing was measured
};

/// "data", "tensor", or "replicated": every worker computes the whole model.
[[nodiscard]] std::string parallelism_name(const std::optional<Sharding>& sharding);

/// --parallelism auto: the fastest parallelism for a model that is lowered but not laid out. Measures kernels and
/// links, or estimates them if the run is deterministic. All ranks use the chief's choice. Collective.
[[nodiscard]] ParallelismChoice calibrate(const CalibrationContext& context, const Graph& graph,
                                          const Optimizer& optimizer);

/// --parallelism tensor: the best tensor-parallel sharding by estimates. Collective. Throws UsageError if there is
/// none.
[[nodiscard]] ParallelismChoice require_tensor_parallel(const CalibrationContext& context, const Graph& graph);

/// A training step as the cost model predicts it.
struct StepPrediction {
  int workers = 1;
  std::optional<Sharding> sharding;
  double compute = 0;        ///< seconds
  double communication = 0;  ///< seconds in which nothing is computed
  [[nodiscard]] double seconds() const noexcept { return compute + communication; }
};

/// The index of the prediction that --parallelism auto chooses; the first is data parallel.
[[nodiscard]] std::size_t best_candidate(const std::vector<double>& seconds);

/// Predicts data-parallel, tensor-parallel (if the model can be sharded) and replicated steps, in this order, for
/// `world_size` workers with one worker per host and links of this latency (seconds) and bandwidth. Measures kernels
/// on this machine.
[[nodiscard]] std::vector<StepPrediction> estimate_step_times(const Backend& backend, const Graph& graph,
                                                              const Optimizer& optimizer, std::size_t batch,
                                                              int world_size, double latency, double bytes_per_second);

}  // namespace lockstep
