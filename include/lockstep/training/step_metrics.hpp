// The metrics of a training step, which a GPU may still be computing.
#pragma once

#include <lockstep/training/metric_sums.hpp>

#include <cstdint>

namespace lockstep {

class TrainingSession;

/// Returned by Model::train_step(). Use it as MetricSums: sums += model.train_step(batch). Reading it waits until the
/// step has finished. A loop that reads it for few steps, or takes the epoch's metrics from Model::end_epoch(), keeps a
/// GPU busy meanwhile. It is valid until the next training step begins, and must not outlive the model.
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
