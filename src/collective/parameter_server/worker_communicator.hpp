// A worker's communicator of one model in a parameter-server job. It owns no shard: mark_ready() sends the gradients of
// a bucket to the servers that hold it, and wait_updated() waits until they have sent the new weights. Weights are
// written as they arrive; that is safe, because a server sends those of a bucket after this worker's gradient of it.
// Gradients are sent from where they lie: a plan waits for a bucket's weights (WaitUpdated) before an operation writes
// its gradient again.
//
// Where a step is not one of all workers, this task gets its work from server 0 (ticket_queue.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collective/parameter_server/task_communicator.hpp"
#include "collective/parameter_server/update_policy.hpp"
#include "core/range.hpp"

namespace lockstep {

/// A worker's part of a round: a slice of a step's batch.
struct Ticket {
  std::uint64_t step = 0;       ///< of the epoch
  std::size_t slice = 0;        ///< of as many as there are training workers; that number: none, of the coordinator
  std::uint64_t iteration = 0;  ///< of the update by its gradient; of an asynchronous one, as far as this worker knows
  std::uint64_t number = 0;     ///< of the step among all of the job, from 0
};

/// What became of the gradient of a ticket.
struct GradientResult {
  bool is_dropped = false;
  std::uint64_t staleness = 0;  ///< updates between its weights and its own update
};

class WorkerCommunicator final : public TaskCommunicator {
 public:
  WorkerCommunicator(TaskGroup& group, const UpdatePolicy& policy);
  ~WorkerCommunicator() override { group_.remove_model(model_); }

  ArenaMemory allocate(std::size_t gradient_elements, std::size_t mirrored_bytes, std::vector<Range> buckets) override;
  void begin_step(const StepNumbers& numbers) override;
  void mirrored_written() override { is_state_sent_ = false; }
  void fetch_slots() override;
  void mark_ready(std::size_t bucket) override;
  void wait_updated(std::size_t bucket) override;

  [[nodiscard]] const UpdatePolicy& policy() const noexcept { return policy_; }
  /// Whether this worker computes gradients.
  [[nodiscard]] bool trains() const noexcept { return policy_.trains(static_cast<std::size_t>(rank())); }
  /// Steps come with tickets, because they are not those of all workers.
  [[nodiscard]] bool has_tickets() const noexcept { return !policy_.waits_for_all(group_.workers()); }
  /// Updates that a step of the epoch causes.
  [[nodiscard]] std::uint64_t updates_per_step() const noexcept {
    return policy_.is_asynchronous ? policy_.training_workers(group_.workers()) : 1;
  }
  /// Collective. `iteration`: of the last update. `number`: of the first of these steps among all of the job.
  void begin_round(const Range& steps, std::uint64_t iteration, std::uint64_t number);
  /// None: the round is over. `counted`: what this worker tells its successor, if it is lost before it asks again.
  [[nodiscard]] std::optional<Ticket> next_ticket(std::span<const double> counted);
  /// What a lost predecessor had counted in this round, once, after the first next_ticket(); else empty.
  [[nodiscard]] std::vector<double> take_inherited() { return std::exchange(inherited_, {}); }
  /// Ends the round after the steps that have begun.
  void close_round();
  /// Collective, when next_ticket() has returned none: gets the weights after the last update, which are the same on
  /// all workers, and returns the end of the round in steps. Of a round that it replays, it does not know the end.
  std::uint64_t end_round();
  [[nodiscard]] bool is_in_round() const noexcept { return is_in_round_; }
  /// Of the weights that this worker has.
  [[nodiscard]] std::uint64_t weights_iteration() const { return versions_.front(); }
  /// Waits for the answer to the last gradient.
  [[nodiscard]] GradientResult wait_result();

 protected:
  /// Without tickets, a server waits for this worker's gradient before it changes weights.
  [[nodiscard]] bool can_share_mirror() const noexcept override { return !has_tickets(); }

 private:
  void receive(std::size_t task, const ModelMessage& message);
  [[nodiscard]] Places weights_of(const ServerShard& shard) const;
  [[nodiscard]] Places place(std::size_t task, const ModelMessage& message) const;
  /// The shard of a message that its server sent. Throws DataError if the server does not hold it.
  [[nodiscard]] const ServerShard& shard_of(std::size_t task, const ModelMessage& message) const;
  void receive_weights(std::size_t task, const ModelMessage& message);
  void send_state();
  void send_to_all_servers(ModelMessageKind kind, std::uint64_t iteration);
  /// Asks the servers for weights of this iteration or a later one, and waits for them.
  void pull(std::uint64_t iteration);
  void wait_all_updated();

  UpdatePolicy policy_;
  std::uint64_t model_;
  std::vector<std::vector<std::size_t>> shards_of_bucket_;  ///< indices in the layout
  std::uint64_t iteration_ = 0;                             ///< of the step that has begun last
  std::vector<bool> is_awaited_;  ///< by shard: its gradient was sent or it was pulled, its weights have not come
  std::vector<std::uint64_t> versions_;  ///< by shard: the iteration of its weights
  std::size_t missing_slots_ = 0;        ///< shards whose slots have not come yet
  bool is_state_sent_ = false;           ///< the servers hold what this worker's arenas held before the first step
  bool is_in_round_ = false;
  std::uint64_t round_ = 0;            ///< how many have begun, on the first worker and on the successor of a lost one
  std::uint64_t round_begin_ = 0;      ///< in steps of the epoch
  std::uint64_t first_number_ = 0;     ///< of the round's steps among all of the job
  std::uint64_t first_iteration_ = 0;  ///< before the round
  std::uint64_t expected_step_ = 0;    ///< of the next ticket, if all gradients of this worker come in time
  std::uint64_t ticket_number_ = 0;    ///< of the job, from 1; whoever gets a lost worker's ticket gives it the same
  bool awaits_ticket_ = false;
  bool is_round_over_ = false;  ///< server 0 has no more tickets
  std::optional<Ticket> ticket_;
  std::vector<double> inherited_;
  bool awaits_result_ = false;  ///< of the gradient of the first shard, which stands for all
  GradientResult result_;
};

}  // namespace lockstep
