// The ranks of one host on shared memory: its layout, and the counters with which ranks signal their progress. This
// code does not depend on MPI, so tests can use threads as ranks under a race detector.
//
// Every rank has two counters per bucket, each on its own cache line: the step in which its gradient was last ready,
// and the step in which its shard was last updated. Counters only grow and are never reset; a rank in step t waits for
// t or more. Storing a counter releases the rank's writes to the arenas, loading it acquires them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collective/communicator.hpp"
#include "collective/topology.hpp"
#include "collective/wait_loop.hpp"

namespace lockstep {

/// The layout of a host's shared memory.
class SharedMemoryLayout {
 public:
  /// Throws InternalError if the total size overflows.
  SharedMemoryLayout(std::size_t ranks, std::size_t gradient_elements, std::size_t mirrored_bytes, std::size_t buckets);

  [[nodiscard]] std::size_t total_bytes() const noexcept { return total_bytes_; }

  /// The counters and the gradient arena of one rank, and the memory that all share.
  [[nodiscard]] std::span<std::byte> counters(std::byte* base, std::size_t local_rank) const noexcept;
  [[nodiscard]] std::span<float> gradients(std::byte* base, std::size_t local_rank) const noexcept;
  [[nodiscard]] std::span<std::byte> mirrored(std::byte* base) const noexcept;

 private:
  std::size_t gradient_elements_;
  std::size_t mirrored_bytes_;
  std::size_t counter_stride_;
  std::size_t gradient_stride_;
  std::size_t gradients_offset_;
  std::size_t mirrored_offset_;
  std::size_t total_bytes_;
};

/// One rank's view of the ranks on its host. `memory` must be aligned to 64 bytes and outlive the group.
class SharedMemoryGroup {
 public:
  /// Clears this rank's part of the memory; the first rank also clears the mirrored part. All ranks must have
  /// constructed their group before any calls mark_ready. `shards`: this rank's shard of each bucket. `on_wait` is
  /// called repeatedly during waits, to make progress on what other ranks wait for.
  SharedMemoryGroup(const Topology& topology, const SharedMemoryLayout& layout, std::byte* memory,
                    std::vector<Range> shards, const WaitPolicy& policy, std::function<void()> on_wait = {});

  [[nodiscard]] ArenaMemory arenas() const noexcept { return arenas_; }

  // As in Communicator, among the ranks of this host.
  void mark_ready(std::size_t bucket);
  [[nodiscard]] ReducedShard wait_reduced(std::size_t bucket);
  void mark_updated(std::size_t bucket);
  void wait_updated(std::size_t bucket);

  /// True if `wait_reduced` would not wait.
  [[nodiscard]] bool is_ready(std::size_t bucket) const noexcept;

  /// Seconds spent waiting since the last call.
  [[nodiscard]] double take_wait() noexcept;

 private:
  enum class Stage : std::size_t { ready = 0, updated = 1 };

  [[nodiscard]] std::uint64_t& counter(std::size_t local_rank, std::size_t bucket, Stage stage) const noexcept;
  void signal(std::size_t bucket, Stage stage) noexcept;
  void wait_for_ranks(std::size_t ranks, std::size_t bucket, Stage stage);
  void wait_for_rank(std::size_t local_rank, std::size_t bucket, Stage stage);

  Topology topology_;
  WaitPolicy policy_;
  std::function<void()> on_wait_;
  std::vector<Range> shards_;         ///< by bucket
  std::vector<std::uint64_t> steps_;  ///< by bucket: this rank's current step, from 1
  ArenaMemory arenas_;
  std::vector<std::byte*> counters_;     ///< by local rank
  std::vector<const float*> gradients_;  ///< by local rank
  double waited_ = 0;
};

}  // namespace lockstep
