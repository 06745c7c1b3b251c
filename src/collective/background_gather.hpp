// Gathers the shards of all ranks on one root rank during training, one slice per step. The cost is processor time on
// both ends, not bandwidth. A slice is therefore sent while its rank waits for others anyway, after the data that those
// wait for, and received in the root's next wait. The slices of all ranks together have a fixed size, unless the gather
// must end sooner. It needs no thread and no handshake: every rank knows from the step which slice is sent.
//
// Includes mpi.h: for .cpp files only.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "cluster/world/mpi_support.hpp"
#include "collective/communicator.hpp"

namespace lockstep {

class BackgroundGather {
 public:
  /// Collective over `world`. At most one gather at a time. `world` and the bytes of the shards must outlive it. The
  /// root passes a buffer for every rank; other ranks pass their data in shards[their rank], the rest is ignored.
  /// `on_gathered`, `max_steps`: see Communicator::start_gather.
  BackgroundGather(const MpiComm& world, std::span<const std::span<std::byte>> shards, int root,
                   Communicator::OnGathered on_gathered, std::size_t max_steps);

  /// Waits up to a second for all messages, since the next gather would receive messages that are left over. Whatever
  /// is then still in flight belongs to a broken world.
  ~BackgroundGather();
  BackgroundGather(const BackgroundGather&) = delete;
  BackgroundGather& operator=(const BackgroundGather&) = delete;

  /// Makes a slice due; the next post_due_slice() or step sends it. All ranks call this equally often until all call
  /// send_remaining().
  void schedule_slice();
  void send_remaining();

  /// Posts the due slice, if any. Call it when this rank begins to wait for another.
  void post_due_slice();

  /// Makes progress on messages in flight. Never waits.
  void make_progress();

  /// At the root: all shards have arrived. Elsewhere: this rank's shard has been sent and may be overwritten.
  [[nodiscard]] bool is_done() const noexcept { return transfers_.empty() && in_flight_.empty(); }

 private:
  struct Transfer {
    int rank;                        ///< of the other end
    std::span<std::byte> remaining;  ///< bytes that are not yet in flight
    std::size_t slice_bytes;
  };

  struct Message {
    MPI_Request request;
    int rank;
    std::size_t bytes;
  };

  void post_slice();

  MPI_Comm world_;
  Communicator::OnGathered on_gathered_;
  bool is_root_ = false;
  bool is_due_ = false;
  std::vector<Transfer> transfers_;  ///< to or from this rank, as far as not wholly in flight
  std::deque<Message> in_flight_;
};

}  // namespace lockstep
