// See piecewise_gather.hpp.
#include "collective/piecewise_gather.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <thread>
#include <vector>

#include "core/clock.hpp"

namespace lockstep {

namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 16U;  // 0.5 ms of a link of 1 Gbit/s
constexpr std::size_t pieces_beside_training = 2;           // one travels while the next is asked for
constexpr std::size_t pieces_in_a_hurry = 32;
constexpr double patience_s = 1;
constexpr int piece_tag = 1;
constexpr int question_tag = 2;

[[nodiscard]] bool are_done(std::vector<MPI_Request>& requests) {
  int done = 0;
  check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
  return done != 0;
}

}  // namespace

PiecewiseGather::PiecewiseGather(const MpiComm& world, std::span<const std::span<std::byte>> parts, int root)
    : world_(world.get()), root_(root), window_(pieces_beside_training) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(world_, &rank), "MPI_Comm_rank");
  if (rank != root) {
    rest_ = parts[static_cast<std::size_t>(rank)];
    await_question();
    return;
  }
  for (std::size_t other = 0; other < parts.size(); ++other) {
    const int sender = static_cast<int>(other);
    if (sender != root && !parts[other].empty()) to_ask_.push_back({sender, parts[other]});
  }
  advance();
}

PiecewiseGather::~PiecewiseGather() {
  if (!mpi_is_up()) return;
  try {
    hurry();
    for (const double begin = monotonic_seconds(); !is_done() && monotonic_seconds() < begin + patience_s;) {
      advance();
      std::this_thread::yield();
    }
  } catch (const std::exception&) {
    // Nobody is left to be told.
  }
  if (is_done()) return;
  under_way_.push_back({question_});
  for (std::vector<MPI_Request>& requests : under_way_) {
    for (MPI_Request& request : requests) {
      if (request == MPI_REQUEST_NULL) continue;
      (void)MPI_Cancel(&request);  // of a receive; a send is not cancelled, and comes to nothing
      (void)MPI_Request_free(&request);
    }
  }
}

void PiecewiseGather::hurry() noexcept { window_ = pieces_in_a_hurry; }

void PiecewiseGather::advance() {
  while (!under_way_.empty() && are_done(under_way_.front())) under_way_.pop_front();
  while (!to_ask_.empty() && under_way_.size() < window_) ask();
  while (!rest_.empty()) {
    int asked = 0;
    check_mpi(MPI_Test(&question_, &asked, MPI_STATUS_IGNORE), "MPI_Test");
    if (asked == 0) break;
    answer();
    await_question();
  }
}

void PiecewiseGather::ask() {
  auto& [rank, rest] = to_ask_.front();
  const std::span<std::byte> piece = rest.first(std::min(rest.size(), piece_bytes));
  std::vector<MPI_Request>& requests = under_way_.emplace_back(2, MPI_REQUEST_NULL);
  check_mpi(MPI_Irecv(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, rank, piece_tag, world_, requests.data()),
            "MPI_Irecv");
  check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, rank, question_tag, world_, &requests[1]), "MPI_Isend");
  rest = rest.subspan(piece.size());
  if (rest.empty()) to_ask_.pop_front();
}

void PiecewiseGather::await_question() {
  if (rest_.empty()) return;
  check_mpi(MPI_Irecv(nullptr, 0, MPI_BYTE, root_, question_tag, world_, &question_), "MPI_Irecv");
}

void PiecewiseGather::answer() {
  const std::span<std::byte> piece = rest_.first(std::min(rest_.size(), piece_bytes));
  std::vector<MPI_Request>& requests = under_way_.emplace_back(1, MPI_REQUEST_NULL);
  check_mpi(
      MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, root_, piece_tag, world_, requests.data()),
      "MPI_Isend");
  rest_ = rest_.subspan(piece.size());
}

}  // namespace lockstep
