// A server's communicator of one model in a parameter-server job. It computes nothing: wait_reduced() waits until all
// workers have sent their gradients of a shard, whose sum in rank order is the reduced gradient, and mark_updated()
// sends the new weights to all of them. Here a "bucket" is one of the shards that this server holds.
//
// Weights are sent from where they lie: the next update needs gradients that each worker sends only after it has
// received these weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "collective/parameter_server/task_communicator.hpp"
#include "core/aligned_buffer.hpp"

namespace lockstep {

class ServerCommunicator final : public TaskCommunicator {
 public:
  explicit ServerCommunicator(TaskGroup& group);
  ~ServerCommunicator() override { group_.remove_model(model_); }

  /// `buckets` are the plan's.
  ArenaMemory allocate(std::size_t gradient_elements, std::size_t mirrored_bytes, std::vector<Range> buckets) override;
  void use_servers(const ServerLayout& layout) override;

  /// The shards that this server holds, in order.
  [[nodiscard]] std::vector<Range> own_ranges() const;

  /// Whether all workers have begun a step.
  [[nodiscard]] bool has_step() const;
  /// The numbers of that step. Throws UsageError if the workers disagree about them.
  [[nodiscard]] StepNumbers take_step();

  [[nodiscard]] ReducedShard wait_reduced(std::size_t shard) override;
  void mark_updated(std::size_t shard) override;
  [[nodiscard]] bool is_reduced(std::size_t shard) const override { return own_.at(shard).missing == 0; }

 protected:
  /// Within a step, servers add up what only they know.
  [[nodiscard]] TaskGroup::Among reducing_tasks() const noexcept override { return TaskGroup::Among::servers; }

 private:
  struct OwnShard {
    std::size_t index = 0;     ///< in the layout
    std::size_t missing = 0;   ///< workers whose gradients have not come
    std::vector<bool> has_it;  ///< by worker
  };

  void receive(std::size_t task, const ModelMessage& message);
  [[nodiscard]] Places place(std::size_t task, const ModelMessage& message);
  [[nodiscard]] OwnShard& own_shard_of(const ModelMessage& message);
  void send_slots(std::size_t worker);

  std::uint64_t model_;
  std::vector<OwnShard> own_;
  std::vector<AlignedBuffer> received_;         ///< by worker that sends them: gradients of this server's shards
  std::vector<const float*> sources_;           ///< by worker: its gradients, received or mapped
  std::vector<std::deque<StepNumbers>> begun_;  ///< by worker: steps that it has begun and this server has not
  StepNumbers step_;                            ///< the step that is being made
};

}  // namespace lockstep
