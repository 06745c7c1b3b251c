// The state machine of one launcher, including the chief's: it joins the job, starts and ends the processes of each
// generation as the coordinator asks, and reports on them. It uses no sockets, processes or clock: events and the time
// go in; messages to the coordinator and actions for the launcher come out.
//
// Actions, and the events that follow them:
//   - StartPmixServer: start the PMIx server of this node; environment() per rank, fence()
//   - StartTrainer: fork the trainer of a local rank; started(), progress(), trainer_exited()
//   - AnswerFence: pass the contributions to the PMIx server
//   - StopAfterThisStep: ask local trainers to save and exit with 75
//   - StopAfterNextBackup: the same, at the next backup
//   - EndGeneration: stop trainers (SIGTERM, then SIGKILL) and the PMIx server; all_ended()
//   - PrintTrainerStacks: make local trainers print where they are
//   - Exit: exit with this code after logging the message
//   - Log: write a line to standard error
//
// The next generation begins only after EndGeneration and all_ended(). failed() reports a PMIx server or fork() that
// failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "cluster/rendezvous/job_status.hpp"
#include "cluster/rendezvous/message.hpp"
#include "cluster/rendezvous/placement.hpp"
#include "cluster/rendezvous/supervision_timeouts.hpp"
#include "core/environment.hpp"

namespace lockstep {

/// Only for the member that runs the PMIx server of `node`.
struct StartPmixServer {
  std::size_t node = 0;
};

struct StartTrainer {
  std::uint64_t rank = 0;
  Environment variables;  ///< added by PMIx
};

struct AnswerFence {
  std::uint64_t sequence = 0;
  bool is_lost = false;            ///< the generation ended: answer with an error
  std::vector<std::string> blobs;  ///< by node
};

struct StopAfterThisStep {};

struct StopAfterNextBackup {};

struct EndGeneration {
  std::string reason;  ///< of a generation that another one replaces
};

struct PrintTrainerStacks {};

struct Exit {
  int code = 0;
  std::string message;  ///< empty if there is nothing to log
};

struct Log {
  std::string text;
  bool is_warning = false;
};

using LauncherAction = std::variant<StartPmixServer, StartTrainer, AnswerFence, StopAfterThisStep, StopAfterNextBackup,
                                    EndGeneration, PrintTrainerStacks, Exit, Log>;

class Member {
 public:
  /// `chief`: its name in messages, "worker 0 (tf-worker-0:5000)".
  Member(std::uint64_t index, std::string chief, const SupervisionTimeouts& timeouts, double now);

  /// A record says that the job had finished before this launcher began. Tells the chief, which may wait for this
  /// member and looks for a record of its own; takes part in the job if there is none. Exits with 0 if the chief, which
  /// may have ended, does not come within goodbye_timeout_after_failure.
  void had_finished() noexcept;

  // Events from the connection.

  void connected(double now);
  void receive(const Message& message, double now);
  void disconnected(const std::string& why, double now);
  /// A connection attempt failed.
  void unreachable(const std::string& why);
  /// The coordinator refused this process.
  void refused(int code, const std::string& reason);
  /// Call it at least every half heartbeat_interval, after processing received messages.
  void tick(double now);

  // Events from the launcher.

  /// The PMIx variables of a rank that this member's PMIx server serves; another member may fork the rank.
  void environment(std::uint64_t rank, Environment variables);
  /// The PMIx server reached its next fence. Returns the sequence number that AnswerFence will carry.
  std::uint64_t fence(std::string blob);
  void started(std::uint64_t rank);
  void progress(Progress report);  ///< fills in the generation
  /// Fills in the generation. `has_reported`: the rank has reported progress. Such a rank exits with 0 only after all
  /// ranks have completed their work.
  void trainer_exited(TrainerExited end, bool has_reported = false);
  void failed(const std::string& reason);
  void all_ended();
  /// The result of take_probe_request().
  void peers_probed(PeersProbed result);
  /// This launcher was told to stop (SIGTERM): it exits with 75 once the generation has ended.
  void leave(const std::string& reason);

  // Results.

  [[nodiscard]] std::vector<Message> take_messages();
  /// True once after an invalid message or a heartbeat timeout: close the connection and reconnect.
  [[nodiscard]] bool take_disconnect_request();
  /// The launchers to connect to; peers_probed() reports which could not be reached.
  [[nodiscard]] std::optional<ProbePeers> take_probe_request();
  [[nodiscard]] std::vector<LauncherAction> take_actions();

  /// The placement of the generation that runs or ends here.
  [[nodiscard]] const Placement& placement() const noexcept { return placement_; }
  [[nodiscard]] bool is_connected() const noexcept { return is_connected_; }
  /// This launcher exits once no process of the generation runs here.
  [[nodiscard]] bool is_exiting() const noexcept { return exit_ || is_leaving_; }

  /// Adds this member's view of the job.
  void add_to(JobStatus& status, double now) const;

 private:
  enum class State { idle, running, ending, exited };

  void on(const GenerationBegins& message);
  void on(const RankEnvironment& message);
  void on(const FenceDone& message);
  void on(const GenerationEnds& message);
  void on(const JobResult& message);
  void on(const Admit& message);
  void on(const Notice& message);
  void on(const PrintStacks& message);
  void on(const ProbePeers& message);
  void on(const Heartbeat& message);
  template <typename Other>
  void on(const Other& message);

  void start_trainer(std::uint64_t rank, Environment variables);
  void end_generation(const std::string& reason);
  void exit(int code, const std::string& message);
  void send(Message message);
  void send_state();  ///< that this member is ready, or that training is complete
  void log(const std::string& text, bool is_warning = false);

  std::uint64_t index_;
  std::string chief_;
  SupervisionTimeouts timeouts_;

  State state_ = State::idle;
  bool is_connected_ = false;
  bool disconnect_requested_ = false;
  double last_heard_ = 0;
  double disconnected_since_ = 0;
  double next_heartbeat_ = 0;
  double next_report_ = 0;
  double last_tick_ = 0;
  std::string disconnect_reason_ = "no connection attempt yet";
  std::optional<Exit> exit_;     ///< pending until no process of the generation runs here
  bool has_job_result_ = false;  ///< send Goodbye on exit, because the chief waits for it
  bool is_leaving_ = false;

  Placement placement_;
  std::uint64_t next_fence_ = 0;
  std::set<std::uint64_t> open_fences_;
  std::set<std::uint64_t> started_ranks_;  ///< ranks with a StartTrainer action
  bool is_done_ = false;                   ///< a local Lockstep rank exited with 0, so all work is done
  bool had_finished_ = false;              ///< before this launcher began

  std::optional<ProbePeers> probe_request_;
  std::uint64_t probing_round_ = 0;  ///< whose result the coordinator waits for; 0: none
  std::vector<Message> messages_;
  std::vector<LauncherAction> actions_;
};

}  // namespace lockstep
