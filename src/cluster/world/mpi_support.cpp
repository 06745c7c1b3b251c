// See mpi_support.hpp.
#include "cluster/world/mpi_support.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace lockstep {

namespace {

constexpr std::size_t page = 4096;

/// True if a handle may be freed, which is collective.
bool peers_will_join() noexcept { return std::uncaught_exceptions() == 0 && mpi_is_up(); }

}  // namespace

void check_mpi(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  const bool known = MPI_Error_string(status, text.data(), &length) == MPI_SUCCESS;
  throw InternalError(fmt::format("{} failed: {}", call,
                                  known ? std::string(text.data(), static_cast<std::size_t>(length))
                                        : fmt::format("unknown MPI error {}", status)));
}

bool mpi_is_up() noexcept {
  int initialized = 0;
  int finalized = 0;
  return MPI_Initialized(&initialized) == MPI_SUCCESS && initialized != 0 && MPI_Finalized(&finalized) == MPI_SUCCESS &&
         finalized == 0;
}

MpiComm::MpiComm(MpiComm&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}

MpiComm& MpiComm::operator=(MpiComm&& other) noexcept {
  if (this != &other) {
    reset();
    comm_ = std::exchange(other.comm_, MPI_COMM_NULL);
  }
  return *this;
}

MpiComm MpiComm::of_world() {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
  MpiComm owner(copy);
  check_mpi(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return owner;
}

MpiComm MpiComm::split(int color) const {
  MPI_Comm group = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm_, color, 0, &group), "MPI_Comm_split");
  MpiComm owner(group);
  if (group != MPI_COMM_NULL) {
    check_mpi(MPI_Comm_set_errhandler(group, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  return owner;
}

void MpiComm::reset() noexcept {
  // Ignores an error, because destructors must not throw.
  if (comm_ != MPI_COMM_NULL && peers_will_join()) (void)MPI_Comm_free(&comm_);
  comm_ = MPI_COMM_NULL;
}

MpiSharedWindow::MpiSharedWindow(const MpiComm& host, std::size_t bytes) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(host.get(), &rank), "MPI_Comm_rank");
  void* own = nullptr;
  check_mpi(MPI_Win_allocate_shared(rank == 0 ? static_cast<MPI_Aint>(bytes + page) : 0, 1, MPI_INFO_NULL, host.get(),
                                    &own, &window_),
            "MPI_Win_allocate_shared (--communication mpi avoids it)");
  MPI_Aint size = 0;
  int unit = 0;
  void* base = nullptr;
  check_mpi(MPI_Win_shared_query(window_, 0, &size, &unit, &base), "MPI_Win_shared_query");
  // Open MPI stores a few words before the base address, so `base` is not page-aligned. Processes map whole pages, so
  // the next page boundary is the same memory in all of them.
  auto room = static_cast<std::size_t>(size);
  if (std::align(page, bytes, base, room) == nullptr) {
    throw InternalError(fmt::format("MPI_Win_allocate_shared returned {} bytes instead of {}", size, bytes + page));
  }
  memory_ = {static_cast<std::byte*>(base), bytes};
}

MpiSharedWindow::MpiSharedWindow(MpiSharedWindow&& other) noexcept
    : window_(std::exchange(other.window_, MPI_WIN_NULL)), memory_(std::exchange(other.memory_, {})) {}

MpiSharedWindow& MpiSharedWindow::operator=(MpiSharedWindow&& other) noexcept {
  if (this != &other) {
    reset();
    window_ = std::exchange(other.window_, MPI_WIN_NULL);
    memory_ = std::exchange(other.memory_, {});
  }
  return *this;
}

void MpiSharedWindow::reset() noexcept {
  if (window_ != MPI_WIN_NULL && peers_will_join()) (void)MPI_Win_free(&window_);
  window_ = MPI_WIN_NULL;
  memory_ = {};
}

}  // namespace lockstep
