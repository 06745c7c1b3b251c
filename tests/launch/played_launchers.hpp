// Launchers in one process: start the PMIx servers of a generation and its ranks, carry fences between them, and end
// them, as launchers on several hosts do over their connections.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/pmix_process.hpp"
#include "cluster/session_directories.hpp"
#include "core/environment.hpp"

struct PlayedHost {
  int node = 0;
  std::vector<int> ranks;
  std::string network_namespace;  ///< "" for this process' own
  std::string address;
};

struct PlayedGeneration {
  std::vector<PlayedHost> hosts;
  std::vector<std::string> command;  ///< program and arguments of all ranks
  lockstep::Environment environment;
};

class PlayedLaunchers {
 public:
  explicit PlayedLaunchers(PlayedGeneration generation);
  ~PlayedLaunchers();  ///< kills what still runs
  PlayedLaunchers(const PlayedLaunchers&) = delete;
  PlayedLaunchers& operator=(const PlayedLaunchers&) = delete;

  /// Goes on until `condition` holds; false where it does not within the limit.
  bool run_until(const std::function<bool()>& condition, double limit = 60);

  void kill(int rank, int signal);
  void kill_server(std::size_t host);
  /// Ends all ranks by SIGKILL, then the servers.
  void end();

  [[nodiscard]] bool all_started() const { return ranks_.size() == generation_ranks_; }
  [[nodiscard]] bool all_ended() const;
  /// As waitpid tells it.
  [[nodiscard]] std::optional<int> status(int rank) const;
  [[nodiscard]] std::string output(int rank) const;
  /// Has every rank printed this?
  [[nodiscard]] bool all_said(const std::string& text) const;

  bool break_fences = false;  ///< from now on they fail
  std::size_t fences = 0;     ///< that all servers came to
  std::vector<lockstep::PmixAbort> aborts;
  std::vector<std::string> lost;    ///< servers, and why
  std::vector<double> ready_after;  ///< seconds from a server's start
  std::vector<std::string> directories() const;

 private:
  struct Host;
  struct Rank {
    pid_t pid = -1;
    std::string output;
    std::optional<int> status;
  };

  void handle(Host& host, const lockstep::PmixEvent& event);
  void start_ranks(const Host& host, const lockstep::PmixReady& ready);
  void reap();

  PlayedGeneration generation_;
  std::size_t generation_ranks_ = 0;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::map<int, Rank> ranks_;
  std::map<std::uint64_t, std::map<const Host*, std::string>> open_fences_;
};
