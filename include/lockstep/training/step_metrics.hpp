// The metrics of a training step, which a GPU may still be computing.
#pragma once

#include <lockstep/training/metric_sums.hpp>

#include <cstdint>

namespace lockstep {

class TrainingSession;

/// Returned by Model::train_step(). Use it as MetricSums: sums += model.train_step(batch). Reading waits until the step
/// has finished, which on a GPU takes the host's lead away; a loop that reads the loss of some steps only, or none and
/// takes the epoch's from end_epoch(), never lets the device wait. Read it before the next training step, and copy what
/// is to last longer. It must not outlive the model.
class StepMetrics {
 public:
  StepMetrics(TrainingSession& session, std::uint64_t iteration) : session_(&session), iteration_(iteration) {}

  /// The sums over the global batch. Throws UsageError after the next training step has begun.
  [[nodiscard]] const MetricSums& get() const;
  operator const MetricSums&() const { return get(); }  // NOLINT(google-explicit-constructor)

  [[nodiscard]] double loss() const { return get().loss(); }

 private:
  TrainingSession* session_;
  std::uint64_t iteration_;
};

}  // namespace lockstep
