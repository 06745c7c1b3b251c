// Runs a plan on an executable and a communicator: a training step, an evaluation, or a prediction.
#pragma once

#include "backend/backend.hpp"
#include "collective/communicator.hpp"
#include "plan/norm_clipping.hpp"
#include "plan/plan.hpp"
#include "plan/schedule.hpp"
#include "plan/step_profile.hpp"

#include <cstddef>
#include <cstdint>

namespace lockstep {

class Step {
 public:
  /// `plan`, `executable` and `communicator` must outlive the step. `local_gradients` is the gradient arena that
  /// Plan::local_ranges refer to.
  Step(const Plan& plan, Executable& executable, Communicator& communicator, const float* local_gradients = nullptr);

  /// Whether ranks all-reduce the metrics and stop requests of this step (Plan::metrics_interval).
  [[nodiscard]] bool reduces_metrics(std::uint64_t iteration) const noexcept;

  /// Forward, backward, all-reduce and update. `iteration` counts from 1. On return the metrics parameter's weights
  /// hold the metric sums of the global batch, or, if the step does not reduce them, its gradient holds this rank's
  /// sums.
  void train(const StepContext& context, const Optimizer& optimizer, std::uint64_t iteration);

  /// Waits until all shards of all weights are updated. Call it before reading weights outside a training step.
  void synchronize();

  /// Runs a forward pass on synchronized weights, whose local metrics the executable then holds. All ranks must run
  /// passes of the same global batches, because they agree on whether to capture one.
  void infer(const StepContext& context);

  /// Runs a forward pass without the loss, so it needs no targets.
  void predict(const StepContext& context);

  /// The times of the training steps since the last reset.
  [[nodiscard]] const StepProfile& profile() const noexcept { return profile_; }
  void reset_profile();

 private:
  class TrainingRun;

  /// Replays a step, captures it, or only enqueues it.
  template <typename Enqueue>
  void run(const StepContext& context, const Optimizer& optimizer, std::uint64_t iteration, bool capturable,
           const Enqueue& enqueue);
  /// Enqueues a step that the device captures, and runs it. If the capture fails on some rank, all ranks run the step
  /// and later ones without captures.
  template <typename Enqueue>
  void capture(const Enqueue& enqueue);
  void enqueue_training(const StepContext& context, const Optimizer& optimizer, std::uint64_t iteration);
  void infer(const PlanStep& step, const StepContext& context);

  const Plan& plan_;
  Executable& executable_;
  Communicator& communicator_;
  const float* local_gradients_;
  Schedule with_metrics_;     ///< of steps that reduce their metrics
  Schedule without_metrics_;  ///< of the others
  NormClipping norm_clipping_;
  StepProfile profile_;
};

}  // namespace lockstep
