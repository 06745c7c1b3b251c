// Runs a plan: compute goes to the device, contributions and reductions to the communicator, shares back to the device.
// Where gradients come from other hosts, a share is updated as soon as they are here and an operation ends, and at the
// end of the step at the latest. Where norms of gradients are clipped, all updates of weights wait for that end.
#pragma once

#include "backend/backend.hpp"
#include "collective/communicator.hpp"
#include "plan/norm_clipping.hpp"
#include "plan/plan.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// Where the time of steps went.
struct StepProfile {
  std::vector<double> seconds;  ///< of each operation of Plan::training; of an update without its reduction
  double reduce = 0;            ///< of all reductions and awaits: waiting for peers, and in MPI
  std::uint64_t steps = 0;

  /// Milliseconds a step by kind of work: input, forward, loss, backward, optimizer, communication.
  [[nodiscard]] std::map<std::string, double> by_kind(const Plan& plan) const;

  /// Milliseconds a step by operation and layer ("dense_backward dense"), compute only.
  [[nodiscard]] std::map<std::string, double> by_operation(const Plan& plan) const;
};

class Step {
 public:
  /// All three must outlive the step. `own_gradients`: the arena that Plan::own_ranges are ranges of.
  Step(const Plan& plan, Executable& executable, Communicator& communicator, const float* own_gradients = nullptr);

  /// Whether ranks sum up the metrics of this step, and with them their requests (Plan::metrics_every).
  [[nodiscard]] bool sums_metrics(std::uint64_t iteration) const noexcept;

  /// Forward, backward, reduction and update. `iteration` counts from 1. When it returns, the metric sums of the
  /// whole global batch lie in the metrics parameter's weights, if the step sums them up, else in its gradient.
  void train(const StepContext& context, const Optimizer& optimizer, std::uint64_t iteration);

  /// Waits until all shares of all weights are up to date: before they are read outside of a training step.
  void settle();

  /// Forward only, on settled weights; this rank's metric sums lie in the metrics parameter's gradient.
  void infer(const StepContext& context);

  /// The same up to the model's outputs; needs no targets.
  void predict(const StepContext& context);

  /// What was spent since the last reset.
  [[nodiscard]] const StepProfile& profile() const noexcept { return profile_; }
  void reset_profile();

 private:
  /// What a step runs: places in Plan::training, in order.
  struct Course {
    Course(const Plan& plan, bool sums_metrics);

    std::vector<std::size_t> operations;
    std::vector<std::size_t> updates;  ///< those of them that update buckets
  };

  /// One operation of an inference. `optimizer` and iteration matter to none of its sums.
  void infer(const Operation& operation, const StepContext& context);
  void sum_up(const Operation& update, const Optimizer& optimizer, std::uint64_t iteration, double& seconds);
  [[nodiscard]] UpdateShare reduce(std::size_t bucket);
  void clip_and_update(const Optimizer& optimizer, std::uint64_t iteration);

  const Plan& plan_;
  Executable& executable_;
  Communicator& communicator_;
  const float* own_gradients_;
  Course with_metrics_;     ///< of steps that sum up their metrics
  Course without_metrics_;  ///< of the others
  NormClipping norm_clipping_;
  StepProfile profile_;
};

}  // namespace lockstep
