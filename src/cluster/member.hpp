// A launcher's part in the job: it joins, starts what a generation needs when the coordinator says so, tells what
// becomes of it, and ends it. It knows no sockets, processes or clock: events and the time go in; messages to the
// coordinator and actions for the launcher come out. The chief's launcher has one as well.
//
// What the launcher does for each action, and which event answers it:
//
//   StartServer    fork the PMIx server of this node's ranks     environment() for each of them, fence() as PMIx asks
//   StartTrainer   fork the trainer of a rank of ours            started(), progress(), at last child_ended()
//   AnswerFence    hand the parts to the PMIx server
//   SaveAndLeave   ask our trainers to save with all others and end with 75
//   LeaveWithBackup  the same at the next backup that comes due
//   EndGeneration  end trainers (TERM, then KILL) and PMIx server, delete what they left    all_ended()
//   Exit           end with this code; say the message if there is one
//   Log            a line for people, on standard error
//
// Only after EndGeneration and all_ended() does the next generation come. A PMIx server or fork() that fails is
// told by failed().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "cluster/job_status.hpp"
#include "cluster/message.hpp"
#include "cluster/supervision.hpp"
#include "cluster/world_map.hpp"
#include "core/environment.hpp"

namespace lockstep {

/// Only where this member serves a node: `node` of the map.
struct StartServer {
  std::size_t node = 0;
};

struct StartTrainer {
  std::uint64_t rank = 0;
  Environment variables;  ///< that PMIx adds
};

struct AnswerFence {
  std::uint64_t sequence = 0;
  bool is_lost = false;            ///< the generation has ended: answer with an error
  std::vector<std::string> blobs;  ///< in the order of the nodes
};

struct SaveAndLeave {};

struct LeaveWithBackup {};

struct EndGeneration {};

struct Exit {
  int code = 0;
  std::string message;  ///< empty where there is nothing to say
};

struct Log {
  std::string text;
  bool is_warning = false;
};

using LauncherAction =
    std::variant<StartServer, StartTrainer, AnswerFence, SaveAndLeave, LeaveWithBackup, EndGeneration, Exit, Log>;

class Member {
 public:
  /// `chief`: as people should read it, "worker 0 (tf-worker-0:5000)".
  Member(std::uint64_t number, std::string chief, const Supervision& limits, double now);

  // From the connection.

  void connected(double now);
  void receive(const Message& message, double now);
  void disconnected(const std::string& why, double now);
  /// An attempt to connect came to nothing.
  void unreachable(const std::string& why);
  /// The coordinator does not want this process.
  void refused(int code, const std::string& reason);
  /// At least every half heartbeat. Read what came in before.
  void tick(double now);

  // From the launcher.

  /// What a rank that this member's PMIx server serves needs in its environment, whoever forks it.
  void environment(std::uint64_t rank, Environment variables);
  /// The PMIx server's next fence; returns its number, by which AnswerFence names it.
  std::uint64_t fence(std::string blob);
  void started(std::uint64_t rank);
  void progress(Progress report);  ///< its generation is filled in
  /// `is_ours`: a program of Lockstep's, of which no rank ends with 0 before all ranks have done all of their work.
  void child_ended(std::uint64_t rank, int code, int signal, bool is_ours = false);
  void failed(const std::string& reason);
  void all_ended();
  /// This launcher was told to go (SIGTERM): it does, with 75, as soon as the generation has ended.
  void leave(const std::string& reason);

  // What comes of it.

  [[nodiscard]] std::vector<Message> take_messages();
  /// True once, after something that makes no sense, or silence: end the connection and make a new one.
  [[nodiscard]] bool take_hang_up();
  [[nodiscard]] std::vector<LauncherAction> take_actions();

  /// Of the generation that runs here, or ends.
  [[nodiscard]] const WorldMap& map() const noexcept { return map_; }
  [[nodiscard]] bool is_connected() const noexcept { return is_connected_; }

  /// Adds what this member knows of the job.
  void add_to(JobStatus& status, double now) const;

 private:
  enum class State { idle, running, ending, gone };

  void on(const Begin& message);
  void on(const RankEnvironment& message);
  void on(const FenceDone& message);
  void on(const GenerationEnds& message);
  void on(const Verdict& message);
  void on(const LetIn& message);
  void on(const Notice& message);
  void on(const Heartbeat& message);
  template <typename Other>
  void on(const Other& message);

  void start_trainer(std::uint64_t rank, Environment variables);
  void end_generation();
  void exit(int code, const std::string& message);
  void send(Message message);
  void log(const std::string& text, bool is_warning = false);

  std::uint64_t number_;
  std::string chief_;
  Supervision limits_;

  State state_ = State::idle;
  bool is_connected_ = false;
  bool hang_up_ = false;
  double heard_ = 0;
  double alone_since_ = 0;
  double next_heartbeat_ = 0;
  double next_report_ = 0;
  double last_tick_ = 0;
  std::string why_alone_ = "not asked yet";
  std::optional<Exit> exit_;  ///< to do when nothing runs any more
  bool has_verdict_ = false;  ///< and says farewell then: the chief waits for who is killed before and comes back
  bool is_leaving_ = false;

  WorldMap map_;
  std::uint64_t next_fence_ = 0;
  std::set<std::uint64_t> open_fences_;
  std::set<std::uint64_t> started_ranks_;  ///< whose StartTrainer was given out
  bool is_done_ = false;                   ///< a rank of ours has ended with 0, so that all work is done

  std::vector<Message> messages_;
  std::vector<LauncherAction> actions_;
};

}  // namespace lockstep
