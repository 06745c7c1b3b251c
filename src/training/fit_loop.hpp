// The loop of Model::fit: epochs of steps, validation, callbacks, progress.
#pragma once

#include "report/progress_bar.hpp"
#include "session/epoch_batches.hpp"
#include "training/model_parts.hpp"

#include <lockstep/training/model.hpp>

#include <cstdint>
#include <optional>

namespace lockstep {

/// "{0: 1, 1: 2.5}".
[[nodiscard]] std::string to_string(const std::map<int, double>& class_weight);

class FitLoop {
 public:
  /// All arguments must outlive the loop. `validation` may be null.
  FitLoop(Model& model, ModelParts& parts, const Dataset& data, const Dataset* validation, const FitOptions& options);

  /// Throws if the loss, or at an epoch's end a weight, is NaN or infinite, unless a callback has stopped training
  /// (TerminateOnNaN): PeerError the first time in a job that can restart, else DataError.
  void run();

 private:
  void warn_of_large_batch(std::size_t examples) const;
  void run_epoch();
  void run_steps();
  /// As run_steps(), where parameter servers make steps that are not those of all workers.
  void run_rounds();
  /// Finishes the oldest step in flight, whose number is the session's position, and advances the position.
  void finish_step();
  /// After a step has finished.
  void call_batch_end(std::int64_t step) const;
  void check_loss(std::int64_t step) const;
  void update_bar(std::int64_t step);

  template <typename Call>
  void for_each_callback(const Call& call) const {
    for (const AnyCallback& callback : options_.callbacks) call(callback.get());
  }

  Model& model_;
  TrainingSession& session_;
  const Dataset* validation_;
  const FitOptions& options_;
  EpochBatches batches_;
  ProgressBar bar_;
  std::vector<MetricValue> shown_;  ///< by the bar
  std::optional<BackupManager> backups_;
};

}  // namespace lockstep
