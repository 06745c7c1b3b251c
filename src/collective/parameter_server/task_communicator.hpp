// The collectives of a parameter-server job as a Communicator. Without arenas it serves as the job's communicator for
// collectives outside of steps; the communicators of models are its subclasses.
//
// Tasks of one host share memory. A server maps the arenas of its host's workers: it reads gradients and writes weights
// there, and the messages only say so. If all tasks run on one host and each step waits for all workers, there is only
// one copy of the weights and slots, that of the first worker: the servers update it in place, as the ranks of mirrored
// training do.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "collective/communicator.hpp"
#include "collective/parameter_server/shared_memory.hpp"
#include "collective/parameter_server/task_group.hpp"

namespace lockstep {

class TaskCommunicator : public Communicator {
 public:
  /// The group must outlive the communicator.
  explicit TaskCommunicator(TaskGroup& group) : group_(group) {}

  /// -1 on a server, which is no rank.
  [[nodiscard]] int rank() const noexcept override { return group_.rank(); }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(group_.workers()); }
  [[nodiscard]] std::string describe() const override;

  /// The servers hold the model. Each worker has it from them: there are no mirrors to compare.
  [[nodiscard]] std::vector<int> mirror_of_rank() const override { return std::vector<int>(group_.workers()); }
  [[nodiscard]] bool is_mirror_owner() const noexcept override { return !shares_mirror_ || rank() == 0; }

  ArenaMemory allocate(std::size_t gradient_elements, std::size_t mirrored_bytes, std::vector<Range> buckets) override;
  void use_servers(const ServerLayout& layout) override { layout_ = layout; }

  void mark_ready(std::size_t /*bucket*/) override {}
  [[nodiscard]] ReducedShard wait_reduced(std::size_t bucket) override;
  void mark_updated(std::size_t /*bucket*/) override {}
  void wait_updated(std::size_t /*bucket*/) override {}
  void make_progress() override { group_.make_progress(); }

  void all_reduce_sum(std::span<double> values) override;
  void broadcast(std::span<std::byte> bytes, int root) override;
  void start_gather(std::span<const std::span<std::byte>> shards, int root, OnGathered on_gathered,
                    std::size_t max_steps) override;
  /// Before the servers serve, their texts follow the workers'.
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& text) override;
  void barrier() override;

  [[nodiscard]] CommunicationTimes take_times() noexcept override { return {.mpi_wait = group_.take_wait()}; }

 protected:
  [[nodiscard]] virtual TaskGroup::Subgroup reducing_tasks() const noexcept { return group_.participants(); }
  /// Whether weights change only when no worker reads them, so that all tasks may use the same ones.
  [[nodiscard]] virtual bool can_share_mirror() const noexcept { return false; }
  /// Whether all tasks use the first worker's weights and slots. The same on all tasks.
  [[nodiscard]] bool shares_mirror() const noexcept { return shares_mirror_; }
  [[nodiscard]] std::span<float> gradients() const noexcept { return gradients_; }
  /// On a server: whether it uses the arenas of that worker.
  [[nodiscard]] bool maps(std::size_t worker) const noexcept {
    return worker < mapped_.size() && !mapped_[worker].is_empty();
  }
  /// On a worker: whether that task, a server, uses this worker's arenas.
  [[nodiscard]] bool is_mapped_by(std::size_t task) const { return is_mapped_by_.at(task); }
  /// From now on data come and go in messages.
  void unmap(std::size_t worker) { mapped_.at(worker) = {}; }
  /// That worker's copy of a part of this server's arenas. Requires maps(worker).
  [[nodiscard]] std::span<std::byte> mapped(std::size_t worker, std::span<const std::byte> part) const;
  /// Sends parts of the arenas, unless the receiver has or reads them there. They must not change until it has
  /// answered.
  void send_parts(std::size_t task, ModelMessageKind kind, std::uint64_t model, std::uint64_t iteration,
                  std::uint64_t shard, std::vector<std::span<const std::byte>> parts);
  /// A shard's range of an array of the layout.
  [[nodiscard]] std::span<float> values_of(std::size_t array, const ServerShard& shard) const;
  /// The 16-bit copies of a shard's weights; empty if there are none.
  [[nodiscard]] std::span<std::byte> copies_of(const ServerShard& shard) const;
  /// Copies bytes of a message to these places, which they fill. Throws DataError if there are more or fewer.
  static void copy_to(std::span<const std::span<std::byte>> places, std::span<const std::byte> bytes);

  TaskGroup& group_;            // NOLINT(misc-non-private-member-variables-in-classes)
  ServerLayout layout_;         // NOLINT(misc-non-private-member-variables-in-classes)
  std::vector<Range> buckets_;  // NOLINT(misc-non-private-member-variables-in-classes)

 private:
  void map_arenas();

  SharedMemory arenas_;
  std::span<float> gradients_;
  std::span<std::byte> mirrored_;
  std::vector<SharedMemory> mapped_;  ///< by worker; empty: data come and go in messages
  std::vector<bool> is_mapped_by_;    ///< by task: it uses this task's arenas
  bool shares_mirror_ = false;
};

}  // namespace lockstep
