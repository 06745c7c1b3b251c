// The world this process belongs to: formed by mpirun (or another PMI launcher), or just this process.
// The one place that knows MPI's process-wide state: initialisation, finalisation, abort.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/environment.hpp"

namespace lockstep {

class World {
 public:
  /// Joins MPI where the environment says that a launcher started this process (Open MPI, PMIx, PMI, Slurm), else a
  /// world of one without touching MPI (which costs a quarter of a second). Collective. The first World of a process
  /// initialises MPI and its destructor finalises it; a World made while MPI is up adopts it. No World can follow
  /// after MPI's end.
  World();
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] bool is_chief() const noexcept { return rank_ == 0; }
  [[nodiscard]] bool uses_mpi() const noexcept { return uses_mpi_; }

  /// Host number of every rank, counted from 0 in the order of the hosts' first ranks. Ranks are on one host if their
  /// boot id and the device of /dev/shm are equal. LOCKSTEP_TEST_HOSTS=0,0,1 overrides it, for tests on one machine.
  [[nodiscard]] const std::vector<int>& host_of_rank() const noexcept { return host_of_rank_; }
  [[nodiscard]] int hosts() const noexcept;

  /// "Open MPI v4.1.4"; known whether MPI is up or not.
  [[nodiscard]] static std::string mpi_library();

  /// Ends the whole world because of an error on this rank: prints `message` once (on the chief's stderr where all
  /// ranks fail alike within a second, else on this rank's, prefixed with its rank), then exits with `code`. Callable
  /// from any state of MPI, also before World exists.
  [[noreturn]] static void end_with_error(int code, const std::string& message);

  /// All ranks call it together: the world ends without an error, and every rank exits with `code`. Waits a while for
  /// ranks that have something to finish.
  [[noreturn]] static void end_together(int code);

 private:
  int rank_ = 0;
  int size_ = 1;
  bool uses_mpi_ = false;
  bool owns_mpi_ = false;
  std::vector<int> host_of_rank_;
};

/// Does the environment say that a launcher made this process part of a world?
[[nodiscard]] bool started_by_launcher(const Environment& environment);

/// The host numbers that LOCKSTEP_TEST_HOSTS means for a world of `size` ranks, counted from 0 in the order of the
/// hosts' first ranks. Throws UsageError unless it is one number a rank, separated by commas.
[[nodiscard]] std::vector<int> parse_test_hosts(const std::string& text, int size);

}  // namespace lockstep
