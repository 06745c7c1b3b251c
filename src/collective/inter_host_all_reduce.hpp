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
// Ranges that are mostly zero, such as the gradient of an Embedding, travel packed (packed_lines.hpp): lines of zeros
// are not sent. The sums are the same, because the receiver unpacks before it adds.
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
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace lockstep {

/// How ranges of the gradients travel between hosts.
struct WireFormat {
  GradientCompression compression = GradientCompression::none;
  std::vector<Range> uncompressed = {};  ///< never compressed
  std::vector<Range> packed = {};        ///< without their lines of zeros
};

class InterHostAllReduce {
 public:
  /// Collective over `comm`, which has one rank of each host. `comm` and `gradients` must outlive this. `shards` is the
  /// shard of each bucket to reduce, and `format` how it travels; both are equal on all ranks.
  InterHostAllReduce(const MpiComm& comm, std::span<float> gradients, std::span<const Range> shards,
                     const WireFormat& format);
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

  /// In all steps so far.
  [[nodiscard]] std::uint64_t packed_bytes_sent() const noexcept { return packed_bytes_sent_; }

 private:
  enum class State { idle, exchanging, gathering, reduced };

  struct GradientSlice {
    Range range;
    bool is_compressed = false;
    bool is_packed = false;
    bool is_unpacked = false;  ///< what was received in this state
    int tag = 0;               ///< of exchanged data; that of gathered data follows
    State state = State::idle;
    std::vector<MPI_Request> receives = {};         ///< while exchanging: the shard that this rank sums
    std::vector<MPI_Request> sends = {};            ///< while exchanging: the shards that other ranks sum
    std::vector<MPI_Request> gathers = {};          ///< while gathering: sums to and from all others
    std::vector<std::size_t> receive_offsets = {};  ///< by host: byte offset of its data in receive_buffer_
    std::vector<std::size_t> packed_offsets = {};   ///< by host: byte offset in packed_sends_ and packed_receives_
  };

  /// The shard of a slice that a host reduces.
  [[nodiscard]] Range shard_of_host(const GradientSlice& slice, std::size_t host) const noexcept;
  /// The address from which an element is sent, or at which its sum is received.
  [[nodiscard]] std::byte* wire_data(const GradientSlice& slice, std::size_t element) const noexcept;
  /// Where a host's values are received while exchanging: this rank's shard.
  [[nodiscard]] std::byte* exchange_data(const GradientSlice& slice, std::size_t host) const noexcept;
  [[nodiscard]] std::size_t assign_receive_offsets();
  [[nodiscard]] std::size_t assign_packed_offsets();
  void create_requests(std::size_t index);
  static void start_requests(std::vector<MPI_Request>& requests);
  [[nodiscard]] static bool test_all(std::vector<MPI_Request>& requests, std::span<MPI_Status> statuses = {});
  [[nodiscard]] bool progress_slice(GradientSlice& slice);

  void start_exchange(GradientSlice& slice);
  void start_gathers(GradientSlice& slice);
  /// Whether all receives have completed; of a packed slice, they are unpacked then.
  [[nodiscard]] bool has_received_all(GradientSlice& slice, std::vector<MPI_Request>& receives);

  // Of packed slices, whose messages have other lengths in each step:
  [[nodiscard]] std::span<const std::byte> pack(const GradientSlice& slice, const Range& range, std::size_t host);
  void send_packed(GradientSlice& slice, std::span<const std::byte> packed, std::size_t host, int tag);
  void unpack_received(const GradientSlice& slice, std::size_t receives);

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
  AlignedBuffer packed_sends_;
  AlignedBuffer packed_receives_;
  std::vector<MPI_Status> statuses_;  ///< of packed receives
  std::uint64_t packed_bytes_sent_ = 0;
  std::vector<GradientSlice> slices_;
  std::vector<std::size_t> first_slice_;  ///< by bucket, with one entry past the last
  std::deque<std::size_t> in_flight_;     ///< indices of slices, oldest first
  std::array<const float*, 2> sources_{};
};

}  // namespace lockstep
