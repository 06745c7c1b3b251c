// See training_log.hpp.
#include "session/training_log.hpp"

#include "core/clock.hpp"

#include <utility>

namespace lockstep {

void TrainingLog::add_step_seconds(double seconds) noexcept {
  epoch_.seconds += seconds;
  step_seconds_ += seconds;
}

void TrainingLog::end_round(const MetricSums& metrics, const std::vector<GradientCounts>& gradients) {
  epoch_.metrics = metrics;
  epoch_.gradients.resize(gradients.size());
  for (std::size_t worker = 0; worker < gradients.size(); ++worker) epoch_.gradients[worker] += gradients[worker];
}

void TrainingLog::end_first_step() {
  if (seconds_to_first_step_ == 0) seconds_to_first_step_ = seconds_since_process_start();
  step_seconds_ = 0;
}

void TrainingLog::add_backup(double seconds) noexcept {
  ++backups_;
  backup_seconds_ += seconds;
}

double TrainingLog::seconds_per_backup() const noexcept { return backups_ > 0 ? backup_seconds_ / backups_ : 0; }

const EpochRecord& TrainingLog::end_epoch(int epoch, Logs logs) {
  EpochRecord record{.epoch = epoch, .logs = std::move(logs), .seconds = epoch_.seconds};
  record.examples_per_second = epoch_.seconds > 0 ? epoch_.metrics.num_examples / epoch_.seconds : 0;
  record.gradients = std::move(epoch_.gradients);
  history_.epochs.push_back(std::move(record));
  epoch_ = {};
  return history_.epochs.back();
}

void TrainingLog::restore(const EpochProgress& epoch, History history) {
  epoch_ = epoch;
  history_ = std::move(history);
}

}  // namespace lockstep
