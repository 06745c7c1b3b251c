// All-reduce between hosts that overlaps with computation. MPI's collectives make progress only inside MPI calls. So an
// all-reduce here consists of point-to-point messages, posted as soon as the gradient is ready. The kernel transports
// them; `make_progress`, called between the operations of a step, receives what has arrived and sends what follows from
// it. A progress thread would take the core from the computation.
//
// A bucket is sent in slices. Two hosts swap their slices and each adds both. More hosts use a reduce-scatter and an
// all-gather: each reduces a shard of every slice and sends the sum to the others, 2 (n - 1) / n of the data per host.
// Sums run in host order, so all ranks get equal bits, and the same world gives the same bits again.
//
// GradientCompression::bfloat16 rounds to nearest even what is sent. With two hosts, both add the two rounded slices.
// With more, the sum is rounded, and its owner uses the rounded sum too. All ranks get equal bits.
//
// Receives are posted before any rank sends, so early data arrives in its destination without another copy.
//
// Includes mpi.h: for .cpp files only.
#pragma once

#include "cluster/world/mpi_support.hpp"
#include "collective/communicator.hpp"
#include "core/aligned_buffer.hpp"
#include "core/bfloat16.hpp"

#include <lockstep/core/communication.hpp>

#include <array>
#include <cstddef>
#include <deque>
#include <span>
#include <vector>

namespace lockstep {

class InterHostAllReduce {
 public:
  /// Collective over `comm`, which has one rank of each host. `comm` and `gradients` must outlive this. `shards` is the
  /// shard of each bucket to reduce, equal on all ranks. Elements in `uncompressed` ranges are never compressed.
  InterHostAllReduce(const MpiComm& comm, std::span<float> gradients, std::span<const Range> shards,
                     GradientCompression compression, std::span<const Range> uncompressed);
  ~InterHostAllReduce();
  InterHostAllReduce(const InterHostAllReduce&) = delete;
  InterHostAllReduce& operator=(const InterHostAllReduce&) = delete;

  /// Starts the all-reduce of a bucket's shard, whose sum over this host is in the gradients and will be overwritten.
  void start(std::size_t bucket);

  /// Makes progress on messages in flight. Never waits.
  void make_progress();

  /// True once the sum of a started bucket is complete.
  [[nodiscard]] bool is_reduced(std::size_t bucket) const noexcept;

  /// The sources of a reduced bucket (see ReducedShard).
  [[nodiscard]] std::span<const float* const> sources() const noexcept {
    return {sources_.data(), hosts_ == 2 ? 2U : 1U};
  }

  /// Ends the use of a reduced bucket; the next step may start.
  void release(std::size_t bucket);

 private:
  enum class State { idle, exchanging, gathering, reduced };

  struct GradientSlice {
    Range range;
    bool is_compressed = false;
    State state = State::idle;
    std::vector<MPI_Request> receives = {};         ///< while exchanging: the shard that this rank sums
    std::vector<MPI_Request> sends = {};            ///< while exchanging: the shards that other ranks sum
    std::vector<MPI_Request> gathers = {};          ///< while gathering: sums to and from all others
    std::vector<std::size_t> receive_offsets = {};  ///< by host: byte offset of its data in receive_buffer_
  };

  /// The shard of a slice that a host reduces.
  [[nodiscard]] Range shard_of_host(const GradientSlice& slice, std::size_t host) const noexcept;
  /// The address from which an element is sent, or at which its sum is received.
  [[nodiscard]] void* wire_data(const GradientSlice& slice, std::size_t element) const noexcept;
  [[nodiscard]] std::size_t assign_receive_offsets();
  void create_requests(std::size_t index);
  static void start_requests(std::vector<MPI_Request>& requests);
  [[nodiscard]] static bool test_all(std::vector<MPI_Request>& requests);
  [[nodiscard]] bool progress_slice(GradientSlice& slice);
  template <typename WireType>
  void reduce_own_shard(const GradientSlice& slice);
  void compress(const Range& range);
  void finish(GradientSlice& slice);

  MPI_Comm comm_;
  std::size_t hosts_ = 0;
  std::size_t host_ = 0;  ///< of this rank
  std::span<float> gradients_;
  AlignedBuffer send_buffer_;     ///< by element: compressed gradients
  AlignedBuffer receive_buffer_;  ///< for data that cannot be received into peer_gradients_
  AlignedBuffer peer_gradients_;  ///< by element: the gradients of the other of two hosts
  std::vector<GradientSlice> slices_;
  std::vector<std::size_t> first_slice_;  ///< by bucket, with one entry past the last
  std::deque<std::size_t> in_flight_;     ///< indices of slices, oldest first
  std::array<const float*, 2> sources_{};
};

}  // namespace lockstep
