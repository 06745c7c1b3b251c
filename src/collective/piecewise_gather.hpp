// Parts of all ranks on their way to one of them, the root, beside what else travels. The root asks for a piece when
// the one before has come, so that never more than a few pieces stand in the way of a step's own messages, and those of
// one rank at a time: the root's link is what all of them share. No thread: `advance` moves on what can be moved.
//
// Includes mpi.h: for .cpp files only.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "cluster/mpi_support.hpp"

namespace lockstep {

class PiecewiseGather {
 public:
  /// Collective over `world`, which must outlive it, as must the bytes: parts[rank], all of which the root passes; the
  /// others have theirs in parts[their rank], and the rest is not looked at. One at a time.
  PiecewiseGather(const MpiComm& world, std::span<const std::span<std::byte>> parts, int root);

  /// Brings it to its end where the others do so, too, within a second: messages that nobody takes could be taken for
  /// those of the next one. What is then still under way belongs to a world that has broken.
  ~PiecewiseGather();
  PiecewiseGather(const PiecewiseGather&) = delete;
  PiecewiseGather& operator=(const PiecewiseGather&) = delete;

  /// Never waits.
  void advance();

  /// From now on nothing else travels: more pieces may be under way.
  void hurry() noexcept;

  /// At the root: all parts are here. Elsewhere: the own part has been sent, and its bytes may be overwritten.
  [[nodiscard]] bool is_done() const noexcept { return to_ask_.empty() && rest_.empty() && under_way_.empty(); }

 private:
  struct Part {
    int rank;
    std::span<std::byte> rest;  ///< what was not yet asked for
  };

  void ask();
  void await_question();
  void answer();

  MPI_Comm world_;
  int root_;
  std::size_t window_;                              ///< pieces that may be under way
  std::deque<Part> to_ask_;                         ///< at the root
  std::span<std::byte> rest_;                       ///< elsewhere: what is not yet sent
  MPI_Request question_ = MPI_REQUEST_NULL;         ///< elsewhere: the root's next one
  std::deque<std::vector<MPI_Request>> under_way_;  ///< messages of a piece, the oldest first
};

}  // namespace lockstep
