// See mpi_support.hpp.
#include "cluster/mpi_support.hpp"

#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

constexpr std::size_t page = 4096;

/// May a handle be freed, which takes all of its ranks?
bool peers_will_join() noexcept { return std::uncaught_exceptions() == 0 && mpi_is_up(); }

}  // namespace

void check_mpi(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  const bool known = MPI_Error_string(status, text.data(), &length) == MPI_SUCCESS;
  throw InternalError(std::string(call) + " failed: " +
                      (known ? std::string(text.data(), static_cast<std::size_t>(length))
                             : "unknown MPI error " + std::to_string(status)));
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
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm_, color, 0, &part), "MPI_Comm_split");
  MpiComm owner(part);
  if (part != MPI_COMM_NULL) {
    check_mpi(MPI_Comm_set_errhandler(part, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  return owner;
}

void MpiComm::reset() noexcept {
  // A status of freeing could only be told by throwing, out of a destructor: there is nothing to be done about it.
  if (comm_ != MPI_COMM_NULL && peers_will_join()) (void)MPI_Comm_free(&comm_);
  comm_ = MPI_COMM_NULL;
}

MpiSharedWindow::MpiSharedWindow(const MpiComm& host, std::size_t bytes) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(host.get(), &rank), "MPI_Comm_rank");
  void* own = nullptr;
  check_mpi(MPI_Win_allocate_shared(rank == 0 ? static_cast<MPI_Aint>(bytes + page) : 0, 1, MPI_INFO_NULL, host.get(),
                                    &own, &window_),
            "MPI_Win_allocate_shared (--communication mpi does without it)");
  MPI_Aint size = 0;
  int unit = 0;
  void* base = nullptr;
  check_mpi(MPI_Win_shared_query(window_, 0, &size, &unit, &base), "MPI_Win_shared_query");
  // Open MPI keeps a few words of its own before the base. Processes map whole pages, so that the first page border
  // from there is the same memory in all of them.
  auto room = static_cast<std::size_t>(size);
  if (std::align(page, bytes, base, room) == nullptr) {
    throw InternalError("MPI_Win_allocate_shared gave " + std::to_string(size) + " bytes where " +
                        std::to_string(bytes + page) + " were asked for");
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
