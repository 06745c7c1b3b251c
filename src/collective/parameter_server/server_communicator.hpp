// A server's communicator of one model in a parameter-server job. It computes nothing. A step has *contributors*: all
// workers, the first ones whose gradients are complete, or one. wait_reduced() waits until they have sent their
// gradients of a shard, whose sum in rank order is the reduced gradient, and mark_updated() sends the new weights to
// them. Here a "bucket" is one of the shards that this server holds.
//
// If all workers contribute to each step, weights are sent from where they lie: the next update needs gradients that
// each worker sends only after it has received these weights. Otherwise copies of them are sent. To a worker of its
// host the server writes them: a worker that waits for weights does not read those that it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collective/parameter_server/task_communicator.hpp"
#include "collective/parameter_server/ticket_queue.hpp"
#include "collective/parameter_server/update_policy.hpp"
#include "core/aligned_buffer.hpp"

namespace lockstep {

class ServerCommunicator final : public TaskCommunicator {
 public:
  ServerCommunicator(TaskGroup& group, const UpdatePolicy& policy);
  ~ServerCommunicator() override { group_.remove_model(model_); }

  /// `buckets` are the plan's.
  ArenaMemory allocate(std::size_t gradient_elements, std::size_t mirrored_bytes, std::vector<Range> buckets) override;
  void use_servers(const ServerLayout& layout) override;

  /// The shards that this server holds, in order.
  [[nodiscard]] std::vector<Range> own_ranges() const;

  /// Whether there is a step to make: all workers have begun it, or enough gradients are complete.
  [[nodiscard]] bool has_step() const;
  /// Chooses the contributors of that step, and returns its numbers. Throws UsageError if they disagree about them.
  [[nodiscard]] StepNumbers take_step();
  /// Call it when all shards of the step are updated.
  void end_step();

  [[nodiscard]] ReducedShard wait_reduced(std::size_t shard) override;
  void mark_updated(std::size_t shard) override;
  /// Not within an asynchronous step, which has all that it needs: nobody is lost or returns meanwhile.
  void make_progress() override {
    if (!is_in_step_ || !policy_.is_asynchronous) TaskCommunicator::make_progress();
  }
  [[nodiscard]] bool is_reduced(std::size_t shard) const override { return missing_contributor(shard) == nullptr; }

 protected:
  [[nodiscard]] bool can_share_mirror() const noexcept override { return policy_.waits_for_all(senders_.size()); }
  /// Within a step, servers add up what only they know.
  [[nodiscard]] TaskGroup::Subgroup reducing_tasks() const noexcept override { return TaskGroup::Subgroup::servers; }

 private:
  struct OwnShard {
    std::size_t index = 0;      ///< in the layout
    std::uint64_t version = 0;  ///< the last iteration that updated it
  };

  struct BegunStep {
    StepNumbers numbers;
    std::uint64_t ticket = 0;  ///< 0: none
  };

  /// What a worker has sent, and this server has not answered with weights.
  struct Sender {
    std::deque<BegunStep> begun;       ///< its gradients are of the first one
    std::uint64_t last_ticket = 0;     ///< whose gradient this server has used
    std::vector<bool> has_sent;        ///< by own shard
    std::size_t answered = 0;          ///< own shards of that step
    std::uint64_t completed_at = 0;    ///< when its last gradient came, counted in complete ones
    AlignedBuffer received;            ///< gradients of the shards that this server holds, unless it maps them
    const float* gradients = nullptr;  ///< where they lie

    [[nodiscard]] bool is_complete() const;
  };

  struct Pull {
    std::size_t worker = 0;
    std::uint64_t iteration = 0;
  };

  void receive(std::size_t task, const ModelMessage& message);
  [[nodiscard]] Places place(std::size_t task, const ModelMessage& message);
  void receive_gradient(std::size_t worker, const ModelMessage& message);
  void receive_state(std::size_t worker, const ModelMessage& message);
  /// Of the messages about tickets.
  void receive_of_round(std::size_t worker, const ModelMessage& message);
  /// The index in own_ of the shard of a message.
  [[nodiscard]] std::size_t own_shard_of(const ModelMessage& message) const;
  [[nodiscard]] std::vector<std::size_t> find_contributors() const;
  /// Null if all have sent their gradients of the shard.
  [[nodiscard]] const std::size_t* missing_contributor(std::size_t shard) const;
  /// Whether the first step that a worker has begun was made without it.
  [[nodiscard]] bool is_late(std::size_t worker, std::uint64_t version) const;
  void send_weights(std::size_t worker, ModelMessageKind kind, std::size_t shard);
  /// Sends weights for a worker's gradient of a shard.
  void answer(std::size_t worker, ModelMessageKind kind, std::size_t shard);
  void answer_pulls();
  /// Of a lost worker: its ticket goes to another one, whose gradient the servers drop that have used the lost one's.
  void forget(std::size_t worker);
  /// Whether this server has used a gradient of the ticket: a lost worker's, or that of the worker that got its ticket.
  [[nodiscard]] bool is_made(std::uint64_t ticket) const;
  /// Answers complete gradients of tickets that are made.
  void drop_made();
  void clear(std::size_t worker);
  void hand_out_tickets();
  void send_slots(std::size_t worker);

  UpdatePolicy policy_;
  std::uint64_t model_;
  std::vector<OwnShard> own_;
  std::vector<Sender> senders_;            ///< by worker
  std::uint64_t completed_ = 0;            ///< gradients
  std::vector<std::size_t> contributors_;  ///< to the step that is being made, in rank order
  std::vector<const float*> sources_;      ///< the addresses of their gradients
  StepNumbers step_;                       ///< the step that is being made, or was made last
  bool is_in_step_ = false;
  std::vector<Pull> pulls_;               ///< that wait for a step
  std::set<std::size_t> lost_;            ///< workers, in the step that is being made
  std::set<std::uint64_t> made_tickets_;  ///< of lost workers
  std::vector<std::string> counted_;      ///< by worker: what it has told in this round
  std::vector<bool> inherits_;            ///< by worker: whether its answer has that
  std::optional<TicketQueue> tickets_;    ///< on server 0, if a step is not one of all workers
};

}  // namespace lockstep
