// An all-to-all: every rank sends a block to every other rank, with persistent point-to-point messages within and
// between hosts. MPI immediately sends the data that the kernel or the peer buffers, and the rest while both ranks
// wait.
//
// Includes mpi.h: for .cpp files only.
#pragma once

#include <cstddef>
#include <vector>

#include "cluster/world/mpi_support.hpp"
#include "collective/communicator.hpp"

namespace lockstep {

class MpiAllToAll {
 public:
  /// `world` and the buffers must outlive this. `next_tags[r]` is the next unused tag for rank r; the constructor
  /// advances it.
  MpiAllToAll(const MpiComm& world, int rank, const AllToAll& buffers, std::vector<int>& next_tags);
  ~MpiAllToAll();
  MpiAllToAll(const MpiAllToAll&) = delete;
  MpiAllToAll& operator=(const MpiAllToAll&) = delete;

  /// Starts to send and receive. The previous all-to-all must be complete.
  void start();

  /// True once everything is sent and received. Makes progress on messages in flight; never waits.
  [[nodiscard]] bool test();

 private:
  AllToAll buffers_;
  std::size_t rank_;
  std::vector<MPI_Request> requests_;
  bool is_in_flight_ = false;
};

}  // namespace lockstep
