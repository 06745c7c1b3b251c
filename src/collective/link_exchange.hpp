// Blocks that ranks hand each other, each rank one to each other: messages straight from memory to memory, between the
// ranks of a host as between hosts. MPI hands what is sent to the kernel, or to the neighbour, as far as these take it,
// and the rest goes while both wait for what they take.
//
// Includes mpi.h: for .cpp files only.
#pragma once

#include <cstddef>
#include <vector>

#include "cluster/mpi_support.hpp"
#include "collective/communicator.hpp"

namespace lockstep {

class LinkExchange {
 public:
  /// `world` and the exchange's memory must outlive it. `first_tags`: by rank, the tag of the first message to or from
  /// it; counted on.
  LinkExchange(const MpiComm& world, int rank, const Exchange& exchange, std::vector<int>& first_tags);
  ~LinkExchange();
  LinkExchange(const LinkExchange&) = delete;
  LinkExchange& operator=(const LinkExchange&) = delete;

  /// Begins to send, and to receive. The last ones must have arrived.
  void give();

  /// True once everything is here and all that was given is sent; moves on what is under way. Never waits.
  [[nodiscard]] bool has_arrived();

 private:
  Exchange exchange_;
  std::size_t rank_;
  std::vector<MPI_Request> requests_;
  bool under_way_ = false;
};

}  // namespace lockstep
