// See background_gather.hpp.
#include "collective/background_gather.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.hpp"

namespace lockstep {

namespace {

constexpr std::size_t bytes_per_step = std::size_t{1} << 17U;  // of all ranks together: 1 ms at 1 Gbit/s
constexpr std::size_t min_slice_bytes = 4096;
constexpr std::size_t max_slice_bytes = std::size_t{1} << 30U;  // MPI counts with an int
constexpr double finish_timeout_s = 1;
constexpr int gather_tag = 1;

}  // namespace

BackgroundGather::BackgroundGather(const MpiComm& world, std::span<const std::span<std::byte>> shards, int root,
                                   Communicator::OnGathered on_gathered, std::size_t max_steps)
    : world_(world.get()), on_gathered_(std::move(on_gathered)) {
  int me = 0;
  check_mpi(MPI_Comm_rank(world_, &me), "MPI_Comm_rank");
  is_root_ = me == root;
  const std::size_t small = std::max(min_slice_bytes, bytes_per_step / std::max<std::size_t>(1, shards.size() - 1));
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const int rank = static_cast<int>(i);
    const bool is_involved = rank != root && (is_root_ || rank == me);
    if (!is_involved || shards[i].empty()) continue;
    // Both ends know the size of the shard, so their slices agree.
    const std::size_t in_time = max_steps == 0 ? 0 : (shards[i].size() + max_steps - 1) / max_steps;
    transfers_.push_back({is_root_ ? rank : root, shards[i], std::min(max_slice_bytes, std::max(small, in_time))});
  }
}

BackgroundGather::~BackgroundGather() {
  if (!mpi_is_up()) return;
  on_gathered_ = {};
  try {
    send_remaining();
    for (const double begin = monotonic_seconds(); !is_done() && monotonic_seconds() < begin + finish_timeout_s;) {
      make_progress();
      std::this_thread::yield();
    }
  } catch (const std::exception&) {
    // A destructor cannot report errors.
  }
  for (Message& message : in_flight_) {
    (void)MPI_Cancel(&message.request);  // cancels receives only; unreceived sends are dropped with the world
    (void)MPI_Request_free(&message.request);
  }
}

void BackgroundGather::schedule_slice() {
  if (is_due_) {  // the previous step never waited
    post_due_slice();
    make_progress();
  }
  is_due_ = true;
}

void BackgroundGather::post_due_slice() {
  if (std::exchange(is_due_, false)) post_slice();
}

void BackgroundGather::post_slice() {
  for (Transfer& transfer : transfers_) {
    const std::span<std::byte> slice =
        transfer.remaining.first(std::min(transfer.remaining.size(), transfer.slice_bytes));
    const auto count = static_cast<int>(slice.size());
    MPI_Request& request = in_flight_.emplace_back(Message{MPI_REQUEST_NULL, transfer.rank, slice.size()}).request;
    if (is_root_) {
      check_mpi(MPI_Irecv(slice.data(), count, MPI_BYTE, transfer.rank, gather_tag, world_, &request), "MPI_Irecv");
    } else {
      check_mpi(MPI_Isend(slice.data(), count, MPI_BYTE, transfer.rank, gather_tag, world_, &request), "MPI_Isend");
    }
    transfer.remaining = transfer.remaining.subspan(slice.size());
  }
  std::erase_if(transfers_, [](const Transfer& transfer) { return transfer.remaining.empty(); });
}

void BackgroundGather::send_remaining() {
  post_due_slice();
  for (Transfer& transfer : transfers_) transfer.slice_bytes = max_slice_bytes;
  while (!transfers_.empty()) post_slice();
}

void BackgroundGather::make_progress() {
  while (!in_flight_.empty()) {
    int done = 0;
    check_mpi(MPI_Test(&in_flight_.front().request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) return;
    const Message message = in_flight_.front();
    in_flight_.pop_front();
    if (is_root_ && on_gathered_) on_gathered_(message.rank, message.bytes);
  }
}

}  // namespace lockstep
