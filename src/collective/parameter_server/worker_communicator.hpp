// A worker's communicator of one model in a parameter-server job. It owns no shard: mark_ready() sends the gradients of
// a bucket to the servers that hold it, and wait_updated() waits until they have sent the new weights. Weights are
// written as they arrive; that is safe, because a server sends those of a bucket after this worker's gradient of it.
// Gradients are sent from where they lie: a plan waits for a bucket's weights (WaitUpdated) before an operation writes
// its gradient again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/parameter_server/task_communicator.hpp"

namespace lockstep {

class WorkerCommunicator final : public TaskCommunicator {
 public:
  explicit WorkerCommunicator(TaskGroup& group);
  ~WorkerCommunicator() override { group_.remove_model(model_); }

  ArenaMemory allocate(std::size_t gradient_elements, std::size_t mirrored_bytes, std::vector<Range> buckets) override;
  void begin_step(const StepNumbers& numbers) override;
  void mirrored_written() override { is_state_sent_ = false; }
  void fetch_slots() override;
  void mark_ready(std::size_t bucket) override;
  void wait_updated(std::size_t bucket) override;

 private:
  void receive(std::size_t task, const ModelMessage& message);
  [[nodiscard]] Places weights_of(const ServerShard& shard) const;
  [[nodiscard]] Places place(std::size_t task, const ModelMessage& message) const;
  /// The shard of a message that its server sent. Throws DataError if the server does not hold it.
  [[nodiscard]] const ServerShard& shard_of(std::size_t task, const ModelMessage& message) const;
  void send_state();

  std::uint64_t model_;
  std::vector<std::vector<std::size_t>> shards_of_bucket_;  ///< indices in the layout
  std::uint64_t iteration_ = 0;                             ///< of the step that has begun last
  std::vector<bool> is_awaited_;   ///< by shard: its gradient was sent, its weights have not come
  std::size_t missing_slots_ = 0;  ///< shards whose slots have not come yet
  bool is_state_sent_ = false;     ///< the servers hold what this worker's arenas held before the first step
};

}  // namespace lockstep
