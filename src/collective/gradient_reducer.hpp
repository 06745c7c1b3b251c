// Averages lists of gradients over the ranks for a framework that keeps its own weights. It uses a Communicator in a
// different way than a native model does: the memory that a host's ranks share holds no weights, but the averages. A
// rank "updates" its shard of a bucket by summing the gradients of that shard; the other ranks then read it.
//
// Gradients lie in the arena in reverse order of their variables, as backward completes them. A bucket holds at least
// `bucket_elements` of them, except the last one. One step, on every rank:
//
//   gradient(i)                 this rank writes its gradient i
//   start(b)                    bucket b is complete; all ranks start the same buckets in the same order
//   average(b, scale)           waits for all gradients of b, and sums this rank's shard of it, times `scale`
//   finish(b)                   waits for the other shards; average_of(i) is complete
//
// average_of(i) stays valid until its bucket is started again. Not thread-safe: the collective calls belong to the
// thread that owns MPI. Between finish() and start() any thread may use the memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "collective/communicator.hpp"

namespace lockstep {

class GradientReducer {
 public:
  /// Collective. `sizes` are the numbers of elements of all gradients, equal on all ranks.
  GradientReducer(std::unique_ptr<Communicator> communicator, std::vector<std::size_t> sizes,
                  std::size_t bucket_elements);

  [[nodiscard]] std::size_t gradients() const noexcept { return sizes_.size(); }
  [[nodiscard]] std::size_t buckets() const noexcept { return buckets_.size(); }
  [[nodiscard]] std::size_t bucket_of(std::size_t gradient) const { return bucket_of_.at(gradient); }

  /// This rank's gradient, and the average over the ranks.
  [[nodiscard]] std::span<float> gradient(std::size_t index) const;
  [[nodiscard]] std::span<const float> average_of(std::size_t index) const;

  /// Makes this rank's gradients of a bucket zero.
  void clear(std::size_t bucket);

  void start(std::size_t bucket);
  /// Makes progress on buckets that were started. Never waits.
  void progress();
  void average(std::size_t bucket, float scale);
  void finish(std::size_t bucket);

  [[nodiscard]] CommunicationTimes take_times() noexcept { return communicator_->take_times(); }

 private:
  std::unique_ptr<Communicator> communicator_;
  std::vector<std::size_t> sizes_;
  std::vector<std::size_t> offsets_;    ///< by gradient, in the arena
  std::vector<std::size_t> bucket_of_;  ///< by gradient
  std::vector<Range> buckets_;
  ArenaMemory arenas_;
};

}  // namespace lockstep
