// The record of a training run: metrics of the current epoch, history of the completed ones, step and backup times.
#pragma once

#include <lockstep/core/history.hpp>
#include <lockstep/training/metric_sums.hpp>

#include <vector>

namespace lockstep {

struct EpochProgress {
  MetricSums metrics;
  double seconds = 0;                          ///< the training thread's, inside training steps
  std::vector<GradientCounts> gradients = {};  ///< see EpochRecord
};

class TrainingLog {
 public:
  void add(const MetricSums& metrics) { epoch_.metrics += metrics; }

  /// Replaces the metrics of the epoch so far by those of all workers, and adds the workers' gradients.
  void end_round(const MetricSums& metrics, const std::vector<GradientCounts>& gradients);

  /// Adds time that the training thread spent inside steps.
  void add_step_seconds(double seconds) noexcept;

  /// The first step with a batch size creates kernels, so step_seconds() leaves it out. Epochs include it.
  void end_first_step();

  /// Discards the metrics of steps outside any epoch.
  void begin_epoch() noexcept { epoch_ = {}; }

  /// Adds a backup and the time that the training thread spent on it.
  void add_backup(double seconds) noexcept;
  [[nodiscard]] int backups() const noexcept { return backups_; }

  /// Counts a backup that was due while another one was being written.
  void add_skipped_backup() noexcept { ++skipped_backups_; }
  [[nodiscard]] int skipped_backups() const noexcept { return skipped_backups_; }
  [[nodiscard]] double seconds_per_backup() const noexcept;

  /// Adds the epoch to the history and begins the next one.
  const EpochRecord& end_epoch(int epoch, Logs logs);

  [[nodiscard]] const EpochProgress& epoch_so_far() const noexcept { return epoch_; }
  [[nodiscard]] const History& history() const noexcept { return history_; }
  void restore(const EpochProgress& epoch, History history);

  [[nodiscard]] double seconds_to_first_step() const noexcept { return seconds_to_first_step_; }

  /// Time inside all steps with the current batch size but the first.
  [[nodiscard]] double step_seconds() const noexcept { return step_seconds_; }

 private:
  EpochProgress epoch_;
  History history_;
  double seconds_to_first_step_ = 0;
  double step_seconds_ = 0;
  int backups_ = 0;
  double backup_seconds_ = 0;
  int skipped_backups_ = 0;
};

}  // namespace lockstep
