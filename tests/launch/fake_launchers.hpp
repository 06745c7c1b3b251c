// Fakes the launchers of several hosts in one process: starts the PMIx servers and ranks of a generation, relays fences
// between the servers, and ends them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/pmix/pmix_process.hpp"
#include "cluster/pmix/session_directories.hpp"
#include "core/environment.hpp"

struct FakeHost {
  int node = 0;
  std::vector<int> ranks;
  std::string network_namespace;  ///< "" for the namespace of this process
  std::string address;
};

struct FakeGeneration {
  std::vector<FakeHost> hosts;
  std::vector<std::string> command;  ///< program and arguments of all ranks
  lockstep::Environment environment;
};

class FakeLaunchers {
 public:
  explicit FakeLaunchers(FakeGeneration generation);
  ~FakeLaunchers();  ///< kills all remaining processes
  FakeLaunchers(const FakeLaunchers&) = delete;
  FakeLaunchers& operator=(const FakeLaunchers&) = delete;

  /// Runs until `condition` holds; returns false after `limit` seconds.
  bool run_until(const std::function<bool()>& condition, double limit = 60);

  void kill(int rank, int signal);
  void kill_server(std::size_t host);
  /// Kills all ranks with SIGKILL, then ends the servers.
  void end();

  [[nodiscard]] bool all_started() const { return ranks_.size() == generation_ranks_; }
  [[nodiscard]] bool all_ended() const;
  /// The status from waitpid().
  [[nodiscard]] std::optional<int> status(int rank) const;
  [[nodiscard]] std::string output(int rank) const;
  /// True if every rank has printed `text`.
  [[nodiscard]] bool all_said(const std::string& text) const;

  bool break_fences = false;  ///< fail all fences from now on
  std::size_t fences = 0;     ///< fences that all servers reached
  std::vector<lockstep::PmixAbort> aborts;
  std::vector<std::string> lost;    ///< why servers were lost
  std::vector<double> ready_after;  ///< seconds until each server was ready
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

  FakeGeneration generation_;
  std::size_t generation_ranks_ = 0;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::map<int, Rank> ranks_;
  std::map<std::uint64_t, std::map<const Host*, std::string>> open_fences_;
};
