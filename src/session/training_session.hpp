// Where the training of a model stands: position, steps in flight, metrics, stop requests, history, tracked values.
#pragma once

#include "core/core_contention.hpp"
#include "metrics/metric_registry.hpp"
#include "report/history_json.hpp"
#include "session/nonfinite_error.hpp"
#include "session/rank_model.hpp"
#include "session/training_log.hpp"

#include <lockstep/training/model.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// The next step of fit() or of a custom loop.
struct TrainingPosition {
  int epoch = 0;
  std::int64_t step = 0;  ///< within the epoch
};

class TrainingSession {
 public:
  /// The model must outlive the session.
  explicit TrainingSession(RankModel& model) : model_(model) {}
  TrainingSession(const TrainingSession&) = delete;
  TrainingSession& operator=(const TrainingSession&) = delete;

  [[nodiscard]] RankModel& model() const noexcept { return model_; }
  [[nodiscard]] RunContext& run_context() const noexcept { return model_.run_context(); }

  /// A training step in two halves, for devices that run asynchronously: `start_step` enqueues a step, `finish_step`
  /// waits for the oldest one and returns its metrics. At most `max_in_flight` steps may be in flight.
  /// With a ticket, the step is on the slice that it names, and the metrics are of this worker alone; of a gradient
  /// that was dropped they are zeros.
  void start_step(const Batch& batch, const Ticket* ticket = nullptr);
  /// An asynchronous worker has nothing to do with an empty slice. A step of the first gradients counts it.
  [[nodiscard]] bool has_work(const Batch& batch, const Ticket& ticket) const;
  /// On a coordinator, whose launcher counts the job's steps.
  void report_step_of_others(const Ticket& ticket);
  /// The result of `finish_step` is valid until the next call.
  const MetricSums& finish_step();
  /// Finishes steps of a custom loop until at most so many are in flight. Throws as check_loss() does.
  void finish_steps(std::size_t max_in_flight = 0);
  /// Waits for the steps in flight and takes their metrics from the device, which an evaluation then may use. They are
  /// still to be finished.
  void take_metrics_in_flight() { take_metrics(in_flight_); }
  /// The metrics of the step that began last. Waits for it but does not finish it, because all ranks must finish a step
  /// at the same time, whichever of them read its metrics. The result is valid until the next step begins.
  const MetricSums& read_last_step();
  [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_; }
  [[nodiscard]] std::size_t max_in_flight() const { return model_.compiled().executable().max_in_flight(); }

  /// Optimizer steps begun, including those before the backup or the model that was loaded.
  [[nodiscard]] std::uint64_t iterations() const { return model_.compiled().iteration; }
  /// 1, or with asynchronous updates the number of workers.
  [[nodiscard]] std::uint64_t updates_per_step() const;
  /// Steps of the job so far. Where each makes several updates, some make fewer: a slice without examples makes none.
  [[nodiscard]] std::uint64_t steps_made() const;
  void set_steps_made(std::uint64_t steps) noexcept { steps_made_ = steps; }

  [[nodiscard]] TrainingPosition position() const noexcept { return position_; }
  void set_position(TrainingPosition position) noexcept { position_ = position; }

  /// Whether a callback has asked fit() to end.
  [[nodiscard]] bool stop_training() const noexcept { return stop_training_; }
  void set_stop_training(bool stop_training) noexcept { stop_training_ = stop_training; }

  /// Throws if the loss is NaN or infinite, as fail_nonfinite() does. All ranks hold the same sums, so all throw.
  /// `where` is "epoch 1, step 2".
  void check_loss(const MetricSums& metrics, const std::string& where) const;
  /// The same for the weights, of which activations may hide NaN from the loss. Collective. Takes one pass over memory.
  void check_weights(const std::string& where) const;

  /// The first time, a job that can restart does so from its last backup, in case a machine made an error: `record`
  /// keeps the step for the next generation, and PeerError is thrown. Throws `error` if the job cannot restart or the
  /// same happened at `step_before`, a step of an earlier generation.
  [[noreturn]] void fail_nonfinite(const NonfiniteError& error) const;
  void restart_once_if_nonfinite(std::uint64_t step_before, std::function<void(std::uint64_t step)> record) {
    nonfinite_step_ = step_before;
    record_nonfinite_ = std::move(record);
  }

  /// What launchers or Ctrl-C had asked for when the ranks last exchanged requests; the same on all ranks.
  [[nodiscard]] StopRequest request() const noexcept { return request_; }
  void add_request(StopRequest request) noexcept { request_ = std::max(request_, request); }

  /// Of this worker, in this process.
  [[nodiscard]] const GradientCounts& gradients() const noexcept { return gradients_; }
  /// Ends the program if a launcher or Ctrl-C asked to stop after this step. For training without backups.
  void leave_if_requested();

  /// Numbers that a custom loop tracks, by name. Backups contain them.
  [[nodiscard]] std::map<std::string, double>& tracked() noexcept { return tracked_; }

  [[nodiscard]] TrainingLog& log() noexcept { return log_; }
  [[nodiscard]] Logs to_logs(const MetricSums& metrics) const;

  /// See OutputMetrics::visit_values.
  template <typename Visitor>
  void visit_values(const MetricSums& metrics, const Visitor& visitor) const {
    model_.compiled().metrics->visit_values(metrics, std::cref(visitor));
  }

  /// Adds the epoch to the history: the metrics of its steps, and `more`.
  const EpochRecord& end_epoch(int epoch, const Logs& more);
  void set_evaluation(const Logs& logs, Mistakes mistakes) {
    evaluation_ = logs;
    mistakes_ = std::move(mistakes);
  }

  /// History, evaluation and step times for history.json.
  [[nodiscard]] RunReport report() const;

 private:
  /// The metrics parameter of a step in flight, or of the one that finished last.
  [[nodiscard]] std::span<float> written_metrics(std::uint64_t iteration) {
    return written_metrics_[iteration % written_metrics_.size()];
  }
  /// Takes the metrics of so many of the oldest steps in flight from the device, unless they are taken.
  void take_metrics(std::size_t steps);
  /// Reads the metrics of the step that finished last.
  void read_metrics();
  /// The same of a step with a ticket.
  void read_metrics_of_ticket();
  void report_step();
  /// Warns once if threads often wait for a core.
  void warn_of_busy_cores();

  RankModel& model_;
  std::size_t in_flight_ = 0;
  std::size_t taken_ = 0;         ///< of the steps in flight, those whose metrics were taken from the device
  std::int64_t steps_ = 0;        ///< that this process began
  std::uint64_t steps_made_ = 0;  ///< as far as rounds have told
  bool is_first_step_ = false;    ///< with its batch size: it creates the kernels, so it counts as start-up
  bool stop_training_ = false;
  StopRequest request_ = StopRequest::none;
  GradientCounts gradients_;
  TrainingPosition position_;
  std::map<std::string, double> tracked_;
  std::uint64_t nonfinite_step_ = 0;
  std::function<void(std::uint64_t step)> record_nonfinite_;  ///< empty if the job cannot restart
  TrainingLog log_;
  std::vector<std::vector<float>> written_metrics_;  ///< by iteration, for as many steps as may be in flight
  MetricSums last_step_;                             ///< of the step that finished last
  MetricSums read_early_;                            ///< of the step that began last
  Logs evaluation_;
  Mistakes mistakes_;
  CoreTimes core_times_ = read_core_times();
  bool warned_of_busy_cores_ = false;
};

}  // namespace lockstep
