// See host_liveness.hpp.
#include "collective/host_liveness.hpp"

#include "collective/first_problem.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <random>
#include <span>
#include <system_error>
#include <utility>

namespace lockstep {

namespace {

constexpr char left = 1;

struct flock lock_of(int rank) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

HostLiveness::HostLiveness(const std::string& name, int rank, std::vector<int> peers)
    : rank_(rank),
      peers_(std::move(peers)),
      file_(shm_open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR)) {
  struct flock lock = lock_of(rank_);
  if (!file_.valid() || fcntl(file_.number(), F_SETLK, &lock) != 0)
    throw IoError(fmt::format("cannot lock /dev/shm{}: {}", name, std::generic_category().message(errno)));
}

HostLiveness::~HostLiveness() {
  if (std::uncaught_exceptions() > 0) return;
  [[maybe_unused]] const ssize_t written = pwrite(file_.number(), &left, sizeof left, rank_);
}

std::optional<int> HostLiveness::find_lost_rank() const noexcept {
  for (const int peer : peers_) {
    struct flock lock = lock_of(peer);
    if (fcntl(file_.number(), F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK) continue;
    char state = 0;
    if (pread(file_.number(), &state, sizeof state, peer) != sizeof state || state != left) return peer;
  }
  return std::nullopt;
}

std::unique_ptr<HostLiveness> watch_host(Communicator& control, const std::vector<int>& host_of_rank) {
  std::array<char, 64> name{};
  if (control.rank() == 0) {
    std::random_device random;
    std::snprintf(name.data(), name.size(), "/lockstep_ranks_%08x%08x", random(), random());
  }
  control.broadcast(std::as_writable_bytes(std::span(name)), 0);
  const auto host_of = [&host_of_rank](int rank) { return host_of_rank[static_cast<std::size_t>(rank)]; };
  std::vector<int> peers;
  for (int rank = 0; rank < control.size(); ++rank) {
    if (rank != control.rank() && host_of(rank) == host_of(control.rank())) peers.push_back(rank);
  }
  std::unique_ptr<HostLiveness> liveness;
  std::string problem;
  if (!peers.empty()) {
    try {
      liveness = std::make_unique<HostLiveness>(name.data(), control.rank(), std::move(peers));
    } catch (const IoError& error) {
      problem = error.what();
    }
  }
  const std::optional<RankProblem> first = first_problem(control, problem);
  (void)shm_unlink(name.data());  // all ranks have opened it
  if (first) throw IoError(fmt::format("rank {} {}", first->rank, first->what));
  return liveness;
}

}  // namespace lockstep
