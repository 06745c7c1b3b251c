// The interface that keeps the ranks' weights equal: gradients are all-reduced bucket by bucket during backward.
//
// A *bucket* is a contiguous range of the flat arenas (gradients, weights and optimizer slots have the same offsets).
// One training step of bucket b, on every rank:
//
//   mark_ready(b)     this rank's gradient of b is complete, and it no longer reads b's weights in this step
//   wait_reduced(b)   waits until all gradients of b are ready; returns the shard to update and its sources
//   ... the caller updates that shard of the weights ...
//   mark_updated(b)   this rank's shard is updated
//   wait_updated(b)   waits until all shards are updated: b's weights may be read, its gradient may be overwritten
//
// The ranks of a host share one copy of weights and optimizer slots in shared memory. Each owner of a shard
// updates it in every bucket, and sums the ranks' gradients a tile at a time. Between hosts, the owners of a shard (one
// per host) all-reduce it while all ranks continue to compute. A rank that is alone on its host owns whole buckets in
// private memory. Sums run in rank order within a host and in host order between hosts: the same world gives the same
// bits.
#pragma once

#include "collective/server_layout.hpp"
#include "core/range.hpp"
#include "core/reduced_shard.hpp"

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The memory of the arenas, on the device that computes: 64-byte aligned and zero-initialized.
struct ArenaMemory {
  std::span<float> gradients;     ///< of this rank
  std::span<std::byte> mirrored;  ///< shared by the ranks of a host: weights, slots, low-precision copies
};

/// The buffers of an all-to-all, indexed by the other rank. A send buffer is as long as the other rank's receive
/// buffer.
struct AllToAll {
  std::vector<std::span<const float>> send;
  std::vector<std::span<float>> receive;
};

/// Seconds that this rank waited since the last call of `take_times`.
struct CommunicationTimes {
  double shared_memory_wait = 0;  ///< for ranks of this host
  double mpi_wait = 0;            ///< for MPI messages
};

class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  /// The number of this rank's host, from 0. Each host has one owner of every shard.
  [[nodiscard]] virtual int host() const noexcept { return 0; }

  /// "shared memory (2 ranks)", "MPI (3 hosts)", "shared memory within 2 hosts, MPI between them".
  [[nodiscard]] virtual std::string describe() const = 0;

  /// For each rank, a number of the `mirrored` memory that it uses: equal for ranks that share it.
  [[nodiscard]] virtual std::vector<int> mirror_of_rank() const = 0;

  /// True on the one rank of each host that fills `mirrored` memory before the first step.
  [[nodiscard]] virtual bool is_mirror_owner() const noexcept = 0;

  /// True if the four calls of a bucket only enqueue work on a device, so that whole steps can be captured.
  [[nodiscard]] virtual bool is_graph_capturable() const noexcept { return false; }

  /// Collective; call it once. All ranks pass equal arguments. The memory lives as long as the communicator. Throws
  /// IoError if /dev/shm is too small, InternalError if the ranks' arguments differ.
  virtual ArenaMemory allocate(std::size_t gradient_elements, std::size_t mirrored_bytes,
                               std::vector<Range> buckets) = 0;

  /// Call before `allocate`, with equal arguments on all ranks: ranges of the gradient arena that hold no gradients,
  /// such as counts of examples, and are never compressed.
  virtual void exclude_from_compression(const std::vector<Range>& /*ranges*/) {}

  /// Call before `allocate`, with equal arguments on all ranks: ranges of the gradient arena that are mostly zero, such
  /// as those of Embeddings. Lines of zeros in them do not travel between hosts. The sums have the same bits.
  virtual void send_without_zeros(const std::vector<Range>& /*ranges*/) {}

  /// Call before `allocate`, with equal arguments on all ranks: a bucket that meets one of these ranges of the arenas
  /// is not cut into shards, so that one rank of each host updates all of it.
  virtual void keep_whole(const std::vector<Range>& /*ranges*/) {}

  /// Call before `allocate`, with equal arguments on all tasks of a parameter-server job: which server holds what.
  virtual void use_servers(const ServerLayout& /*layout*/) {}

  /// Call at the beginning of each training step. Parameter servers update the weights by these numbers.
  virtual void begin_step(const StepNumbers& /*numbers*/) {}

  /// Call after mirrored memory was written outside of a step, on all ranks alike: parameter servers go on from the
  /// first rank's.
  virtual void mirrored_written() {}

  /// Call before the optimizer's slots are read, between two steps: parameter servers hold them.
  virtual void fetch_slots() {}

  virtual void mark_ready(std::size_t bucket) = 0;
  [[nodiscard]] virtual ReducedShard wait_reduced(std::size_t bucket) = 0;
  virtual void mark_updated(std::size_t bucket) = 0;
  virtual void wait_updated(std::size_t bucket) = 0;

  /// Collective; call it once. The buffers must outlive the communicator. Each step starts and finishes every
  /// all-to-all once, in the same order on all ranks. `start_all_to_all` never waits; send buffers must not change
  /// until `finish_all_to_all` returns, which waits for the other ranks. Receive buffers stay valid until the next
  /// `start_all_to_all`. All-to-alls are never compressed.
  virtual void prepare_all_to_alls(const std::vector<AllToAll>& all_to_alls) {
    if (!all_to_alls.empty()) throw InternalError("this communicator does not support all-to-all");
  }
  virtual void start_all_to_all(std::size_t /*all_to_all*/) {}
  virtual void finish_all_to_all(std::size_t /*all_to_all*/) {}

  /// Makes progress on messages in flight; never waits. Call it repeatedly between `mark_ready` and `wait_reduced`.
  virtual void make_progress() {}

  /// False while data of a ready bucket is still in flight from other hosts, so that `wait_reduced` would wait.
  [[nodiscard]] virtual bool is_reduced(std::size_t /*bucket*/) const { return true; }

  /// Collective: sums a small array over all ranks, in rank order, so that all ranks get equal bits.
  virtual void all_reduce_sum(std::span<double> values) = 0;

  /// Collective: copies the root's bytes to all ranks.
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;

  /// Collective: starts to copy each rank's bytes to the root in slices during training. The root passes a buffer for
  /// every rank; other ranks pass their data in shards[rank()], the rest is ignored. Sizes must match. The bytes must
  /// not change until is_gathered(). The previous gather must be finished. At the root, `on_gathered` (if set) is
  /// called during waits as bytes arrive: `bytes` more of `rank`'s shard may be read. The slices are so large that
  /// `max_steps` steps send everything; with 0 they are as small as suits the steps.
  using OnGathered = std::function<void(int rank, std::size_t bytes)>;
  virtual void start_gather(std::span<const std::span<std::byte>> shards, int root, OnGathered on_gathered,
                            std::size_t max_steps) = 0;

  /// All ranks call this at the beginning of each step: the next slice of a gather is sent while the step waits.
  virtual void schedule_gather_slice() {}

  /// At the root: all shards have arrived. Elsewhere: this rank's shard has been sent.
  [[nodiscard]] virtual bool is_gathered() const noexcept { return true; }

  /// Collective: waits until the gather, if any, is complete.
  virtual void finish_gather() {}

  /// Ends the gather while an exception is propagating, whether or not the other ranks answer.
  virtual void cancel_gather() noexcept {}

  /// Collective: returns the texts of all ranks in rank order. Throws InternalError for a text above 1 MiB.
  [[nodiscard]] virtual std::vector<std::string> all_gather(const std::string& text) = 0;

  virtual void barrier() = 0;

  [[nodiscard]] virtual CommunicationTimes take_times() noexcept = 0;
};

}  // namespace lockstep
