// The world of this process: formed by a launcher (mpirun, srun, `lockstep launch`), or just this process. It owns
// MPI's process-wide state: initialization, finalization, abort.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/environment.hpp"

namespace lockstep {

/// For developers: "0,0,1" makes a world of three ranks on one machine act as if it had two hosts.
inline constexpr const char* simulated_hosts_variable = "LOCKSTEP_SIMULATED_HOSTS";

class World {
 public:
  /// Initializes MPI if a launcher started this process (started_by_launcher()). Otherwise makes a world of one without
  /// MPI, because MPI_Init takes a quarter of a second. Collective. The first World of a process initializes MPI and
  /// its destructor finalizes it; a World made while MPI is up shares it. Throws InternalError after MPI_Finalize.
  explicit World(const Environment& environment = current_environment());
  ~World();
  /// A world whose ranks share no MPI: each process is on a host of its own. `rank` is -1 for a parameter server, which
  /// is no rank.
  World(int rank, int size);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] bool is_chief() const noexcept { return rank_ == 0; }

  /// Host number of every rank, counted from 0 in the order of the hosts' first ranks. Ranks are on one host if their
  /// host_id() is equal. `simulated_hosts_variable` overrides it.
  [[nodiscard]] const std::vector<int>& host_of_rank() const noexcept { return host_of_rank_; }
  [[nodiscard]] int hosts() const noexcept;

  /// "Open MPI v4.1.4"; callable in any state of MPI.
  [[nodiscard]] static std::string mpi_library();

  /// Called before the process ends by one of the functions below, with the exit code and the error or "": tells peers
  /// that MPI does not know.
  static void set_end_handler(std::function<void(int code, const std::string& message)> handler);

  /// Ends the whole world because of an error on this rank and exits with `code`. If all ranks fail with the same error
  /// within a second, only the chief logs `message`; otherwise this rank logs it with its rank. Callable in any state
  /// of MPI, also before a World exists.
  [[noreturn]] static void end_with_error(int code, const std::string& message);

  /// Ends the world without an error: all ranks call it and exit with `code`. Waits up to 20 s for the other ranks.
  [[noreturn]] static void end_together(int code);

 private:
  int rank_ = 0;
  int size_ = 1;
  bool owns_mpi_ = false;
  std::vector<int> host_of_rank_;
};

/// Parses the value of `simulated_hosts_variable` for a world of `size` ranks and renumbers the hosts from 0 in the
/// order of their first ranks. Throws UsageError unless it is one number per rank, separated by commas.
[[nodiscard]] std::vector<int> parse_simulated_hosts(const std::string& text, int size);

}  // namespace lockstep
