// See piecewise_gather.hpp.
#include "collective/piecewise_gather.hpp"

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

constexpr std::size_t bytes_a_step = std::size_t{1} << 17U;  // of all ranks: 1 ms of a link of 1 Gbit/s
constexpr std::size_t smallest_piece = 4096;
constexpr std::size_t largest_piece = std::size_t{1} << 30U;  // MPI counts with an int
constexpr double patience_s = 1;
constexpr int gather_tag = 1;

}  // namespace

PiecewiseGather::PiecewiseGather(const MpiComm& world, std::span<const std::span<std::byte>> parts, int root,
                                 Communicator::PartCame came)
    : world_(world.get()), came_(std::move(came)) {
  int me = 0;
  check_mpi(MPI_Comm_rank(world_, &me), "MPI_Comm_rank");
  is_root_ = me == root;
  piece_bytes_ = std::max(smallest_piece, bytes_a_step / std::max<std::size_t>(1, parts.size() - 1));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int rank = static_cast<int>(i);
    const bool travels = rank != root && (is_root_ || rank == me);
    if (travels && !parts[i].empty()) parts_.push_back({is_root_ ? rank : root, parts[i]});
  }
}

PiecewiseGather::~PiecewiseGather() {
  if (!mpi_is_up()) return;
  came_ = {};
  try {
    send_rest();
    for (const double begin = monotonic_seconds(); !is_done() && monotonic_seconds() < begin + patience_s;) {
      advance();
      std::this_thread::yield();
    }
  } catch (const std::exception&) {
    // Nobody is left to be told.
  }
  for (Message& message : under_way_) {
    (void)MPI_Cancel(&message.request);  // of a receive; a send is not cancelled, and comes to nothing
    (void)MPI_Request_free(&message.request);
  }
}

void PiecewiseGather::begin_step() {
  if (is_due_) {  // the last step had no wait
    use_wait();
    advance();
  }
  is_due_ = true;
}

void PiecewiseGather::use_wait() {
  if (std::exchange(is_due_, false)) send_piece();
}

void PiecewiseGather::send_piece() {
  for (Part& part : parts_) {
    const std::span<std::byte> piece = part.rest.first(std::min(part.rest.size(), piece_bytes_));
    const auto count = static_cast<int>(piece.size());
    MPI_Request& request = under_way_.emplace_back(Message{MPI_REQUEST_NULL, part.rank, piece.size()}).request;
    if (is_root_) {
      check_mpi(MPI_Irecv(piece.data(), count, MPI_BYTE, part.rank, gather_tag, world_, &request), "MPI_Irecv");
    } else {
      check_mpi(MPI_Isend(piece.data(), count, MPI_BYTE, part.rank, gather_tag, world_, &request), "MPI_Isend");
    }
    part.rest = part.rest.subspan(piece.size());
  }
  std::erase_if(parts_, [](const Part& part) { return part.rest.empty(); });
}

void PiecewiseGather::send_rest() {
  use_wait();
  piece_bytes_ = largest_piece;
  while (!parts_.empty()) send_piece();
}

void PiecewiseGather::advance() {
  while (!under_way_.empty()) {
    int done = 0;
    check_mpi(MPI_Test(&under_way_.front().request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) return;
    const Message message = under_way_.front();
    under_way_.pop_front();
    if (is_root_ && came_) came_(message.rank, message.bytes);
  }
}

}  // namespace lockstep
