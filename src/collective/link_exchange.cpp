// See link_exchange.hpp.
#include "collective/link_exchange.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <vector>

namespace lockstep {

namespace {

constexpr std::size_t parcel_elements = std::size_t{1} << 17U;  // what MPI sends at once (cluster/world.cpp)
constexpr int tags = 16384;  // MPI promises twice as many; messages that share one come in their order

/// Calls make(first element, elements, tag) for each message of a block.
template <typename Make>
void for_each_parcel(std::size_t elements, int first_tag, const Make& make) {
  for (std::size_t at = 0; at < elements; at += parcel_elements, ++first_tag) {
    make(at, static_cast<int>(std::min(parcel_elements, elements - at)), first_tag % tags);
  }
}

}  // namespace

LinkExchange::LinkExchange(const MpiComm& world, int rank, const Exchange& exchange, std::vector<int>& first_tags)
    : exchange_(exchange), rank_(static_cast<std::size_t>(rank)) {
  const std::size_t ranks = exchange_.given.size();
  for (std::size_t step = 1; step < ranks; ++step) {  // each begins with another: no one is everybody's first
    const std::size_t to = (rank_ + step) % ranks;
    const std::size_t from = (rank_ + ranks - step) % ranks;
    const std::span<const float> given = exchange_.given[to];
    const std::span<float> taken = exchange_.taken[from];
    for_each_parcel(taken.size(), first_tags[from], [&](std::size_t at, int count, int tag) {
      check_mpi(MPI_Recv_init(taken.data() + at, count, MPI_FLOAT, static_cast<int>(from), tag, world.get(),
                              &requests_.emplace_back(MPI_REQUEST_NULL)),
                "MPI_Recv_init");
    });
    for_each_parcel(given.size(), first_tags[to], [&](std::size_t at, int count, int tag) {
      check_mpi(MPI_Send_init(given.data() + at, count, MPI_FLOAT, static_cast<int>(to), tag, world.get(),
                              &requests_.emplace_back(MPI_REQUEST_NULL)),
                "MPI_Send_init");
    });
  }
  for (std::size_t other = 0; other < ranks; ++other) {
    const std::size_t longest = std::max(exchange_.given[other].size(), exchange_.taken[other].size());
    first_tags[other] += static_cast<int>((longest + parcel_elements - 1) / parcel_elements);
  }
}

LinkExchange::~LinkExchange() {
  if (!mpi_is_up()) return;
  // While an exception leaves, a peer may be gone in the midst of a message: nobody waits for it, or can be told.
  for (MPI_Request& request : requests_) (void)MPI_Request_free(&request);
}

void LinkExchange::give() {
  std::copy(exchange_.given[rank_].begin(), exchange_.given[rank_].end(), exchange_.taken[rank_].begin());
  under_way_ = !requests_.empty();
  // One after the other, since MPI_Startall may begin with any, and messages that share a tag have an order.
  for (MPI_Request& request : requests_) check_mpi(MPI_Start(&request), "MPI_Start");
}

bool LinkExchange::has_arrived() {
  if (!under_way_) return true;
  int done = 0;
  check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
            "MPI_Testall");
  under_way_ = done == 0;
  return !under_way_;
}

}  // namespace lockstep
