// The ranks of one host at work on shared memory: where everything lies in it, and the counters by which they tell each
// other how far they are. Knows nothing of MPI, so that threads can stand in for ranks under a race detector.
//
// Every rank has two counters a bucket, each on a cache line of its own: in how many steps it has contributed, in how
// many it has published. They only grow, so that nothing is ever reset: whoever is in step t waits for t or more.
// Writing one releases what the rank wrote to the arenas before, reading it acquires that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collective/communicator.hpp"
#include "collective/patience.hpp"
#include "collective/topology.hpp"

namespace lockstep {

/// Where things lie in the memory of a host.
class HostLayout {
 public:
  /// Throws InternalError where the sum of all does not fit a machine's addresses.
  HostLayout(std::size_t ranks, std::size_t gradient_elements, std::size_t mirrored_bytes, std::size_t buckets);

  [[nodiscard]] std::size_t total_bytes() const noexcept { return total_; }

  /// One rank's counters; its own gradient arena; the memory of all.
  [[nodiscard]] std::span<std::byte> counters(std::byte* base, std::size_t local) const noexcept;
  [[nodiscard]] std::span<float> gradients(std::byte* base, std::size_t local) const noexcept;
  [[nodiscard]] std::span<std::byte> mirrored(std::byte* base) const noexcept;

 private:
  std::size_t gradient_elements_;
  std::size_t mirrored_bytes_;
  std::size_t counter_stride_;
  std::size_t gradient_stride_;
  std::size_t gradients_at_;
  std::size_t mirrored_at_;
  std::size_t total_;
};

/// One rank's part in the team of its host. `memory` is aligned to 64 bytes and outlives the team.
class HostTeam {
 public:
  /// Clears this rank's part of the memory (the first rank's: the mirrored part, too). All ranks must have made their
  /// team before any contributes. `meanwhile` is called again and again in waits: what others wait for elsewhere.
  HostTeam(const Topology& topology, const HostLayout& layout, std::byte* memory, std::vector<BucketRange> buckets,
           const WaitPolicy& policy, std::function<void()> meanwhile = {});

  [[nodiscard]] ArenaMemory arenas() const noexcept { return arenas_; }

  // As in Communicator, among the ranks of the host.
  void contribute(std::size_t bucket);
  [[nodiscard]] ReducedShare reduce(std::size_t bucket);
  void publish(std::size_t bucket);
  void await(std::size_t bucket);

  /// True if `reduce` would not wait.
  [[nodiscard]] bool is_contributed(std::size_t bucket) const noexcept;

  /// Seconds spent waiting since the last call.
  [[nodiscard]] double take_waiting() noexcept;

 private:
  enum class Stage : std::size_t { contributed = 0, published = 1 };

  [[nodiscard]] std::uint64_t& counter(std::size_t local, std::size_t bucket, Stage stage) const noexcept;
  void tell(std::size_t bucket, Stage stage) noexcept;
  void wait_for(std::size_t ranks, std::size_t bucket, Stage stage);
  void wait_slowly(std::size_t local, std::size_t bucket, Stage stage);

  Topology topology_;
  WaitPolicy policy_;
  std::function<void()> meanwhile_;
  std::vector<BucketRange> buckets_;
  std::vector<std::uint64_t> steps_;  ///< by bucket: the step this rank is in, from 1
  ArenaMemory arenas_;
  std::vector<std::byte*> counters_;     ///< by local rank
  std::vector<const float*> gradients_;  ///< by local rank
  double waiting_ = 0;
};

}  // namespace lockstep
