// See mpi_all_to_all.hpp.
#include "collective/mpi_all_to_all.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <vector>

namespace lockstep {

namespace {

constexpr std::size_t max_message_elements = std::size_t{1} << 17U;  // MPI's eager limit (cluster/world/world.cpp)
constexpr int tags = 16384;  // MPI guarantees twice as many; messages that share a tag arrive in order

/// Calls make(first element, elements, tag) for each message of a block.
template <typename Make>
void for_each_message(std::size_t elements, int first_tag, const Make& make) {
  for (std::size_t at = 0; at < elements; at += max_message_elements, ++first_tag) {
    make(at, static_cast<int>(std::min(max_message_elements, elements - at)), first_tag % tags);
  }
}

}  // namespace

MpiAllToAll::MpiAllToAll(const MpiComm& world, int rank, const AllToAll& buffers, std::vector<int>& next_tags)
    : buffers_(buffers), rank_(static_cast<std::size_t>(rank)) {
  const std::size_t ranks = buffers_.send.size();
  for (std::size_t step = 1; step < ranks;
       ++step) {  // each rank begins with its successor, so that no rank is every other's first
    const std::size_t to = (rank_ + step) % ranks;
    const std::size_t from = (rank_ + ranks - step) % ranks;
    const std::span<const float> sent = buffers_.send[to];
    const std::span<float> received = buffers_.receive[from];
    for_each_message(received.size(), next_tags[from], [&](std::size_t at, int count, int tag) {
      check_mpi(MPI_Recv_init(received.data() + at, count, MPI_FLOAT, static_cast<int>(from), tag, world.get(),
                              &requests_.emplace_back(MPI_REQUEST_NULL)),
                "MPI_Recv_init");
    });
    for_each_message(sent.size(), next_tags[to], [&](std::size_t at, int count, int tag) {
      check_mpi(MPI_Send_init(sent.data() + at, count, MPI_FLOAT, static_cast<int>(to), tag, world.get(),
                              &requests_.emplace_back(MPI_REQUEST_NULL)),
                "MPI_Send_init");
    });
  }
  for (std::size_t other = 0; other < ranks; ++other) {
    const std::size_t longest = std::max(buffers_.send[other].size(), buffers_.receive[other].size());
    next_tags[other] += static_cast<int>((longest + max_message_elements - 1) / max_message_elements);
  }
}

MpiAllToAll::~MpiAllToAll() {
  if (!mpi_is_up()) return;
  // While an exception propagates, a peer may be lost in the middle of a message, so this does not wait for it.
  for (MPI_Request& request : requests_) (void)MPI_Request_free(&request);
}

void MpiAllToAll::start() {
  std::copy(buffers_.send[rank_].begin(), buffers_.send[rank_].end(), buffers_.receive[rank_].begin());
  is_in_flight_ = !requests_.empty();
  // In order: MPI_Startall may start requests in any order, but messages that share a tag must not be reordered.
  for (MPI_Request& request : requests_) check_mpi(MPI_Start(&request), "MPI_Start");
}

bool MpiAllToAll::test() {
  if (!is_in_flight_) return true;
  int done = 0;
  check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
            "MPI_Testall");
  is_in_flight_ = done == 0;
  return !is_in_flight_;
}

}  // namespace lockstep
