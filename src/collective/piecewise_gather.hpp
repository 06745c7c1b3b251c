// Parts of all ranks on their way to one of them, the root, beside training: a piece a step. It is the processor that
// it costs, for both ends, not the link. So it is sent when a rank waits for others anyway, behind its own part of what
// they wait for, and taken out of the kernel at the root's next wait. All ranks' pieces together are as short however
// many there are. No thread, and no questions: in every step the root awaits what the others send.
//
// Includes mpi.h: for .cpp files only.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "cluster/mpi_support.hpp"
#include "collective/communicator.hpp"

namespace lockstep {

class PiecewiseGather {
 public:
  /// Collective over `world`, which must outlive it, as must the bytes: parts[rank], all of which the root passes; the
  /// others have theirs in parts[their rank], and the rest is not looked at. One at a time. `came`: see
  /// Communicator::start_gather.
  PiecewiseGather(const MpiComm& world, std::span<const std::span<std::byte>> parts, int root,
                  Communicator::PartCame came);

  /// Brings it to its end where the others do so, too, within a second: messages that nobody takes could be taken for
  /// those of the next one. What is then still under way belongs to a world that has broken.
  ~PiecewiseGather();
  PiecewiseGather(const PiecewiseGather&) = delete;
  PiecewiseGather& operator=(const PiecewiseGather&) = delete;

  /// A piece is due, until the next use_wait() or step. All ranks call both equally often, until one of them hurries:
  /// then all do.
  void begin_step();
  void send_rest();

  /// For when this rank begins to wait for another.
  void use_wait();

  /// Moves on what is under way. Never waits.
  void advance();

  /// At the root: all parts are here. Elsewhere: the own part has been sent, and its bytes may be overwritten.
  [[nodiscard]] bool is_done() const noexcept { return parts_.empty() && under_way_.empty(); }

 private:
  struct Part {
    int rank;                   ///< the other end's
    std::span<std::byte> rest;  ///< what is not yet under way
  };

  struct Message {
    MPI_Request request;
    int rank;
    std::size_t bytes;
  };

  void send_piece();

  MPI_Comm world_;
  Communicator::PartCame came_;
  bool is_root_ = false;
  bool is_due_ = false;
  std::size_t piece_bytes_ = 0;
  std::vector<Part> parts_;  ///< at the root all others', elsewhere the own one; those that have a rest
  std::deque<Message> under_way_;
};

}  // namespace lockstep
