// MPI's handles with owners, and its status codes as errors. The one place that includes mpi.h: for .cpp files, and
// for private headers that only they include.
//
// Freeing a communicator or a window is collective. While an exception leaves, the peers are elsewhere and would never
// join, so handles are then left to the end of the process, which World::end_with_error brings about.
#pragma once

// Open MPI 4 and MPICH would declare their C++ bindings, which nobody links any more.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstddef>
#include <span>

namespace lockstep {

/// Throws InternalError, naming `call` and what MPI says, unless `status` is MPI_SUCCESS.
void check_mpi(int status, const char* call);

/// True between MPI_Init and MPI_Finalize.
[[nodiscard]] bool mpi_is_up() noexcept;

/// A communicator of our own; its errors return as status codes. May be null.
class MpiComm {
 public:
  MpiComm() = default;
  ~MpiComm() { reset(); }
  MpiComm(MpiComm&& other) noexcept;
  MpiComm& operator=(MpiComm&& other) noexcept;

  /// A private copy of the whole world. Collective.
  [[nodiscard]] static MpiComm of_world();
  /// The ranks that pass the same `color`, in the order of their ranks here; null for color MPI_UNDEFINED. Collective.
  [[nodiscard]] MpiComm split(int color) const;

  [[nodiscard]] MPI_Comm get() const noexcept { return comm_; }

 private:
  explicit MpiComm(MPI_Comm comm) : comm_(comm) {}
  void reset() noexcept;

  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// Memory that the ranks of one host share, held as one piece by the first of them.
class MpiSharedWindow {
 public:
  MpiSharedWindow() = default;
  /// Collective over `host`, whose ranks must share memory. All pass the same size. The memory begins on a page.
  MpiSharedWindow(const MpiComm& host, std::size_t bytes);
  ~MpiSharedWindow() { reset(); }
  MpiSharedWindow(MpiSharedWindow&& other) noexcept;
  MpiSharedWindow& operator=(MpiSharedWindow&& other) noexcept;

  [[nodiscard]] std::span<std::byte> memory() const noexcept { return memory_; }

 private:
  void reset() noexcept;

  MPI_Win window_ = MPI_WIN_NULL;
  std::span<std::byte> memory_;
};

}  // namespace lockstep
