// The launcher of one task: joins the job, starts the trainers of each generation and the PMIx server that makes them
// an MPI world, supervises them, and exits with the job's exit code. It is single-threaded around one poll().
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/config/cluster_spec.hpp"
#include "cluster/launcher/progress_tracker.hpp"
#include "cluster/launcher/trainer_process.hpp"
#include "cluster/net/kept_files.hpp"
#include "cluster/net/socket.hpp"
#include "cluster/pmix/pmix_process.hpp"
#include "cluster/pmix/session_directories.hpp"
#include "cluster/rendezvous/member.hpp"
#include "cluster/rendezvous/rendezvous.hpp"
#include "cluster/status/status_server.hpp"
#include "core/deadline.hpp"
#include "core/environment.hpp"
#include "core/generation_record.hpp"

namespace lockstep {

/// An inclusive range of ports; no restriction if 0.
struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
};

struct LauncherOptions {
  ClusterSpec cluster;               ///< without tasks, this launcher is the whole job
  std::vector<std::string> command;  ///< program and arguments of every trainer
  std::uint64_t ranks = 1;           ///< number of trainers that this launcher forks
  PortRange mpi_ports;               ///< on which MPI listens
  std::uint16_t status_port = 0;     ///< for /healthz, /metrics and /report; 0: none
  RendezvousOptions rendezvous;
  bool trainers_are_tasks = false;  ///< of a job whose trainers connect to each other, and prove that they may
  Environment environment;          ///< of the trainers, before PMIx adds its variables
};

class Launcher {
 public:
  /// Blocks the signals it handles. Throws UsageError if the program cannot be run, PeerError if a port
  /// is taken.
  explicit Launcher(const LauncherOptions& options);

  /// Runs until the job is over or a signal stops this launcher; returns the exit code.
  [[nodiscard]] int run();

 private:
  void wait();
  void take_signals();
  void take_pmix_events();
  void take_reports();
  [[nodiscard]] bool looks_for_stopped_processes() const { return !is_ending_ && timeouts_.stall_timeout > 0; }
  void check_for_stopped_processes();
  void reap_trainers();
  void finish_ending();
  void report_unkillable();
  void leave_unkillable_behind();
  [[nodiscard]] std::string take_out_of_memory();

  [[nodiscard]] StatusReply answer(const std::string& path) const;
  [[nodiscard]] StatusReply live_report() const;
  void record_generation(const Placement& placement);

  void act(const StartPmixServer& action);
  void act(StartTrainer& action);
  void act(const AnswerFence& action);
  void act(const StopAfterThisStep& action);
  void act(const StopAfterNextBackup& action);
  void act(const EndGeneration& action);
  void act(const PrintTrainerStacks& action);
  void act(const Exit& action);
  static void act(const Log& action);
  void send_request_to_trainers(StopRequest request);
  void tell_where_output_is(std::uint64_t started_rank);
  void stop_trainers();

  SupervisionTimeouts timeouts_;
  PortRange mpi_ports_;
  Environment environment_;
  std::string master_address_;  ///< the chief's, for programs with a rendezvous of their own
  std::string launch_id_;       ///< random; the chief's identifies the job unless LOCKSTEP_JOB_ID does
  std::vector<std::string> command_;
  Socket signals_;
  Rendezvous rendezvous_;
  std::vector<GenerationRecord> generations_;
  KeptFiles kept_files_{inherited_files()};  ///< the locks of the job's directories, between generations too

  // The current generation.
  std::unique_ptr<SessionDirectories> directories_;
  std::unique_ptr<PmixProcess> server_;
  std::vector<std::uint64_t> served_ranks_;        ///< ranks that use `server_`
  std::map<std::uint64_t, std::uint64_t> fences_;  ///< the PMIx server's sequence number of a fence by the member's
  std::map<std::uint64_t, std::unique_ptr<TrainerProcess>> trainers_;
  ProgressTracker progress_tracker_;
  std::uint64_t oom_kills_ = 0;  ///< of this container, before the last one that was told
  bool is_ending_ = false;
  bool trainers_are_tasks_ = false;
  bool has_trained_ = false;                      ///< a local trainer has begun a step in this generation
  Deadline next_stop_check_ = Deadline::never();  ///< for processes stopped by SIGSTOP
  std::map<std::string, Deadline> stopped_;       ///< names of stopped processes, and when they count as lost
  Deadline kill_at_ = Deadline::never();
  Deadline report_unkillable_at_ = Deadline::never();
  Deadline leave_behind_at_ = Deadline::never();  ///< if this launcher is to exit

  bool is_leaving_ = false;
  Deadline leave_by_ = Deadline::never();  ///< for trainers that have a request to save and exit

  std::filesystem::path live_report_;  ///< that the chief writes for `status_`; empty without
  std::unique_ptr<StatusServer> status_;
  std::optional<int> exit_code_;
};

}  // namespace lockstep
