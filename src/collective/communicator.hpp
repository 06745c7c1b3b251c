// How mirrors are kept equal: gradients are summed over the ranks bucket by bucket while backward goes on.
//
// A *bucket* is a contiguous range of the flat arenas (gradients, weights, optimizer slots have the same offsets). One
// training step of a bucket, on every rank:
//
//   contribute(b)   my gradient of b is complete, and I read its weights no more in this step
//   reduce(b)       waits until all have contributed; tells which part I must update, and from which sources
//   ... the caller updates that part of the weights ...
//   publish(b)      my part is updated
//   await(b)        waits until all parts are: b's weights may be read, my gradient of b may be overwritten
//
// Ranks of one host keep weights and optimizer slots once, in a shared window, and each updates its share of every
// bucket, summing the ranks' gradients where they lie. Between hosts each share travels among the ranks that own it,
// once a host, while all compute on. A rank alone on its host owns whole buckets and keeps its arenas to itself. Sums
// run in rank order within a host, in the order of hosts between them: same world, same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"

namespace lockstep {

/// A range [begin, end) of elements of the arenas.
struct BucketRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// The part of a bucket that this rank updates. The gradient of element i is sources[0][i] + sources[1][i] + ..., each
/// pointer being the base of a gradient arena. Empty (begin == end) where the rank owns no share.
struct ReducedShare {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::span<const float* const> sources;
};

/// Where the arenas lie: in the memory of the device that computes. All is 64-byte aligned and zero at first.
struct ArenaMemory {
  std::span<float> gradients;     ///< this rank's own
  std::span<std::byte> mirrored;  ///< one for all ranks of a host: weights, slots, low-precision copies
};

/// Memory through which ranks hand each other blocks within a step, by rank: what this one gives to it, what it takes
/// from it. What a rank gives to another is as long as what that one takes from it.
struct Exchange {
  std::vector<std::span<const float>> given;
  std::vector<std::span<float>> taken;
};

/// Time this rank spent waiting for others or in MPI since the last call of `take_times`, in seconds.
struct CommunicationTimes {
  double waiting = 0;   ///< for peers of this host
  double reducing = 0;  ///< inside MPI
};

class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  /// Number of this rank's host, from 0. A share that `reduce` gives has an owner on each host.
  [[nodiscard]] virtual int host() const noexcept { return 0; }

  /// "shared memory (2 ranks)", "MPI (3 hosts)", "shared memory within 2 hosts, MPI between them".
  [[nodiscard]] virtual std::string describe() const = 0;

  /// True on the one rank of each host that fills `mirrored` memory before the first step.
  [[nodiscard]] virtual bool owns_mirror() const noexcept = 0;

  /// True where the four calls of a bucket only enqueue work on a device, which may then record whole steps.
  [[nodiscard]] virtual bool only_enqueues() const noexcept { return false; }

  /// Collective; once. Memory lives as long as the communicator. Every rank passes the same numbers.
  /// Throws IoError where /dev/shm is too small (says how much is needed, how much is there, and the remedy).
  virtual ArenaMemory allocate(std::size_t gradient_elements, std::size_t mirrored_bytes,
                               std::vector<BucketRange> buckets) = 0;

  /// Before `allocate`: ranges of gradients that are none, such as counts of examples, and must not be rounded as
  /// gradients may be on their way. Every rank passes the same.
  virtual void keep_exact(const std::vector<BucketRange>& /*ranges*/) {}

  virtual void contribute(std::size_t bucket) = 0;
  [[nodiscard]] virtual ReducedShare reduce(std::size_t bucket) = 0;
  virtual void publish(std::size_t bucket) = 0;
  virtual void await(std::size_t bucket) = 0;

  /// Collective; once. Exchanges are never rounded; their memory must outlive the communicator. A step gives and takes
  /// each once, all ranks in the same order: `give` never waits, and leaves what is given alone until `take` has
  /// returned, which waits for what the others give. That may be read until the next `give`.
  virtual void prepare_exchanges(const std::vector<Exchange>& exchanges) {
    if (!exchanges.empty()) throw InternalError("this communicator knows sums only");
  }
  virtual void give(std::size_t /*exchange*/) {}
  virtual void take(std::size_t /*exchange*/) {}

  /// To be called again and again between contributions and reductions: moves on what travels. Never waits.
  virtual void advance() {}

  /// False while what `reduce` waits for is still on its way from other hosts. Of a bucket that was contributed.
  [[nodiscard]] virtual bool is_here(std::size_t /*bucket*/) const { return true; }

  /// Sums small arrays over all ranks in rank order; the same bits everywhere.
  virtual void all_reduce_sum(std::span<double> values) = 0;

  /// Copies the root's bytes to everybody.
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;

  /// Begins to copy each rank's bytes, parts[rank], to the root, which passes room for all of them; the others have
  /// theirs in parts[rank()], and the rest is not looked at. The root knows how many bytes each rank has. They travel
  /// in pieces beside training; until all is there everybody leaves them alone. What was begun before must be finished.
  /// `came`, if any, is called at the root where it waits anyway: so many more of a rank's bytes may be read now.
  using PartCame = std::function<void(int rank, std::size_t bytes)>;
  virtual void start_gather(std::span<const std::span<std::byte>> parts, int root, PartCame came) = 0;

  /// All ranks call it at the beginning of each step: a piece of what is being gathered travels, if there is any, while
  /// the step waits for others.
  virtual void gather_piece() {}

  /// At the root: all parts are here. Elsewhere: mine is sent.
  [[nodiscard]] virtual bool is_gathered() const noexcept { return true; }

  /// Waits until it is so; collective, where a gather was begun.
  virtual void finish_gather() {}

  /// For when an exception leaves: ends it, with what has come, or without if others do not answer.
  virtual void drop_gather() noexcept {}

  /// Everybody's text in rank order, on every rank. At most 1 MiB each.
  [[nodiscard]] virtual std::vector<std::string> all_gather(const std::string& text) = 0;

  virtual void barrier() = 0;

  [[nodiscard]] virtual CommunicationTimes take_times() noexcept = 0;
};

}  // namespace lockstep
