// The rest of an epoch where steps come with tickets (collective/parameter_server/ticket_queue.hpp), round by round: a
// worker takes tickets, and at the end of each round all workers agree on weights, metrics, position and requests.
#pragma once

#include "session/backup_manager.hpp"
#include "session/epoch_batches.hpp"
#include "session/training_session.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

class TrainingRounds {
 public:
  /// From the session's position to `end`, in steps of the epoch. `backups` may be null. Both must outlive the object.
  /// Throws UsageError if a batch has no example for some worker, without which an update would be due.
  TrainingRounds(TrainingSession& session, BackupManager* backups, std::uint64_t end, const EpochBatches& batches);
  TrainingRounds(const TrainingRounds&) = delete;
  TrainingRounds& operator=(const TrainingRounds&) = delete;

  /// None at the end, or after a round in which a callback has stopped training. Begins and ends rounds, which is
  /// collective: takes a backup or leaves then as if one step had ended. Throws if the loss of an ended round is not
  /// finite.
  [[nodiscard]] std::optional<Ticket> next_ticket();

  /// Adds what the step of the ticket returned.
  void add(const MetricSums& metrics) {
    metrics_ += metrics;
    has_counted_ = true;
  }

 private:
  void begin_round();
  void end_round();
  /// What this worker, and predecessors that were lost, have counted in the round: loss, examples, sums of metrics,
  /// then gradients.
  [[nodiscard]] std::vector<double> counted() const;
  void inherit(std::span<const double> counted);
  /// Whether the round should end early.
  [[nodiscard]] bool wants_to_stop() const;
  /// Adds up what the workers say. Each knows metrics and gradients of its own tickets. Returns the end of the round in
  /// steps, which the chief knows.
  std::uint64_t agree(std::uint64_t end);

  struct Round {
    std::uint64_t begin = 0;   ///< in steps of the epoch
    std::uint64_t number = 0;  ///< of its first step among all of the job
  };

  TrainingSession& session_;
  WorkerCommunicator& worker_;
  BackupManager* backups_;
  std::uint64_t end_;
  Round round_;
  MetricSums before_;                ///< of the epoch until this round, of all workers
  MetricSums metrics_;               ///< of this worker's tickets in this round
  GradientCounts gradients_before_;  ///< this round, of this worker
  std::vector<double> inherited_gradients_;
  bool has_counted_ = false;
  bool is_closed_ = false;
};

}  // namespace lockstep
