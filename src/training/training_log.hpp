// What a model's training has come to: the epoch so far, the epochs before it, and how fast it went.
#pragma once

#include <lockstep/core/history.hpp>
#include <lockstep/training/values.hpp>

namespace lockstep {

struct EpochSoFar {
  StepMetrics metrics;
  double seconds = 0;  ///< inside of training steps
};

class TrainingLog {
 public:
  void add(const StepMetrics& metrics) noexcept { epoch_.metrics += metrics; }

  /// Of the training thread, inside of steps.
  void count_seconds(double seconds) noexcept;

  /// The first step makes the kernels: it is start-up, not speed.
  [[nodiscard]] bool is_first_step() const noexcept { return seconds_to_first_step_ == 0; }
  void end_first_step();

  /// Forgets steps that belong to no epoch yet.
  void begin_epoch() noexcept { epoch_ = {}; }

  /// Of the training thread, for a backup.
  void count_backup(double seconds) noexcept;
  [[nodiscard]] int backups() const noexcept { return backups_; }
  [[nodiscard]] double seconds_per_backup() const noexcept;

  /// Notes the epoch and begins the next.
  const EpochRecord& end_epoch(int epoch, Logs logs);

  [[nodiscard]] const EpochSoFar& epoch_so_far() const noexcept { return epoch_; }
  [[nodiscard]] const History& history() const noexcept { return history_; }
  void restore(const EpochSoFar& epoch, History history);

  [[nodiscard]] double seconds_to_first_step() const noexcept { return seconds_to_first_step_; }

  /// In all steps after the first one of this process.
  [[nodiscard]] double step_seconds() const noexcept { return step_seconds_; }

 private:
  EpochSoFar epoch_;
  History history_;
  double seconds_to_first_step_ = 0;
  double step_seconds_ = 0;
  int backups_ = 0;
  double backup_seconds_ = 0;
};

}  // namespace lockstep
