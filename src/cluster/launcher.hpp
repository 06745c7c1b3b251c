// A task's launcher: finds the others, forks the trainers of every generation and the PMIx server that makes them a
// world, notices when one ends, and ends with the job's exit code. One thread, one poll().
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/child.hpp"
#include "cluster/cluster_spec.hpp"
#include "cluster/deadline.hpp"
#include "cluster/member.hpp"
#include "cluster/pmix_process.hpp"
#include "cluster/rendezvous.hpp"
#include "cluster/session_directories.hpp"
#include "cluster/socket.hpp"
#include "cluster/status_server.hpp"
#include "cluster/trainer_watch.hpp"
#include "core/environment.hpp"

namespace lockstep {

/// Both ends included; none where they are 0.
struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
};

struct LauncherOptions {
  ClusterSpec cluster;  ///< without tasks the launcher is alone
  std::vector<std::string> command;
  std::uint64_t ranks = 1;        ///< trainers of this launcher
  PortRange mpi_ports;            ///< that MPI shall listen on
  std::uint16_t status_port = 0;  ///< for those who ask how the job is; 0: none
  RendezvousOptions rendezvous;
  Environment environment;  ///< what trainers get, and what PMIx adds
};

class Launcher {
 public:
  /// Blocks the signals it handles. Throws UsageError for a program that cannot be run, or a port that is taken.
  explicit Launcher(const LauncherOptions& options);

  /// Until the job is over, or this launcher is told to go: its exit code.
  [[nodiscard]] int run();

 private:
  void wait();
  void take_signals();
  void take_pmix_events();
  void take_reports();
  void look_for_stopped();
  void take_ends();
  void end_what_ends();

  [[nodiscard]] StatusReply answer(const std::string& path) const;

  void act(const StartServer& action);
  void act(StartTrainer& action);
  void act(const AnswerFence& action);
  void act(const SaveAndLeave& action);
  void act(const LeaveWithBackup& action);
  void act(const EndGeneration& action);
  void act(const Exit& action);
  static void act(const Log& action);
  void ask_trainers(Request request);
  void stop_trainers();

  Supervision limits_;
  PortRange mpi_ports_;
  Environment environment_;
  std::vector<std::string> command_;
  Socket signals_;
  Rendezvous rendezvous_;

  // Of the generation that runs.
  std::unique_ptr<SessionDirectories> directories_;
  std::unique_ptr<PmixProcess> server_;
  std::vector<std::uint64_t> served_;
  std::map<std::uint64_t, std::uint64_t> fences_;  ///< PMIx's numbers of them, by ours
  std::map<std::uint64_t, std::unique_ptr<Child>> trainers_;
  TrainerWatch watch_;
  bool is_ending_ = false;
  bool has_stepped_ = false;                   ///< one of our trainers, in this generation
  Deadline next_look_ = Deadline::never();     ///< for trainers that somebody has stopped
  std::map<std::uint64_t, Deadline> stopped_;  ///< these, and how long they may be
  Deadline kill_at_ = Deadline::never();

  bool is_leaving_ = false;
  Deadline leave_by_ = Deadline::never();  ///< for trainers that were asked to

  std::unique_ptr<StatusServer> status_;
  std::optional<int> exit_code_;
};

}  // namespace lockstep
