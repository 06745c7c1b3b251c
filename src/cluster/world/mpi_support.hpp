// RAII wrappers of MPI handles, and MPI status codes as exceptions. This is the only header that includes mpi.h;
// include it only in .cpp files and private headers.
//
// Freeing a communicator or a window is collective. During stack unwinding the other ranks do not take part, so handles
// are leaked until World::end_with_error ends the process.
#pragma once

// Disables the obsolete C++ bindings of Open MPI 4 and MPICH.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstddef>
#include <span>

namespace lockstep {

/// Throws InternalError, naming `call` and the MPI error, unless `status` is MPI_SUCCESS.
void check_mpi(int status, const char* call);

/// True between MPI_Init and MPI_Finalize.
[[nodiscard]] bool mpi_is_up() noexcept;

/// Owns a communicator, or none. MPI returns its errors as status codes.
class MpiComm {
 public:
  MpiComm() = default;
  ~MpiComm() { reset(); }
  MpiComm(MpiComm&& other) noexcept;
  MpiComm& operator=(MpiComm&& other) noexcept;

  /// Duplicates MPI_COMM_WORLD. Collective.
  [[nodiscard]] static MpiComm of_world();
  /// Groups the ranks that pass the same `color`, in rank order; null for MPI_UNDEFINED. Collective.
  [[nodiscard]] MpiComm split(int color) const;

  [[nodiscard]] MPI_Comm get() const noexcept { return comm_; }

 private:
  explicit MpiComm(MPI_Comm comm) : comm_(comm) {}
  void reset() noexcept;

  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// Contiguous shared memory of the ranks of one host. The first of them allocates it.
class MpiSharedWindow {
 public:
  MpiSharedWindow() = default;
  /// Collective over `host`, whose ranks must be able to share memory and pass equal sizes. The memory is page-aligned.
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
