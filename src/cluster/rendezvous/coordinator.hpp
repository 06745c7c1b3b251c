// The state machine of a job, in the chief's launcher: which members are connected, which generation runs, why it ended
// and when the job is over. It uses no sockets and no clock: events and the time go in, actions come out.
//
//   gathering --all members connected and Ready--> running --all ranks exited with 0--> finished
//       ^                                            |  \--permanent error, or too many restarts--> finished
//       \--------- a rank or member failed ----------/     (gathering also finishes after rendezvous_timeout)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cluster/rendezvous/job_status.hpp"
#include "cluster/rendezvous/link_probes.hpp"
#include "cluster/rendezvous/message.hpp"
#include "cluster/rendezvous/placement.hpp"
#include "cluster/rendezvous/stall_detector.hpp"
#include "cluster/rendezvous/supervision_timeouts.hpp"

namespace lockstep {

/// Send `message` to these members.
struct Send {
  std::vector<std::size_t> to;
  Message message;
};

/// Close this member's connection, without calling member_lost().
struct Disconnect {
  std::size_t member = 0;
};

/// Every member has acknowledged the job result, or no longer will: the chief may exit once its messages are sent.
struct AllAcknowledged {};

using CoordinatorAction = std::variant<Send, Disconnect, AllAcknowledged>;

class Coordinator {
 public:
  /// `tasks`: names of the members ("worker 1"), the chief first. `run_id`: unique per run; part of PMIx namespaces.
  /// `are_members_proved`: members have shown that they know the job's secret, or are on this host.
  Coordinator(const std::vector<std::string>& tasks, std::string run_id, const SupervisionTimeouts& timeouts,
              double now, bool are_members_proved = true);

  // Events. `now` never decreases.

  /// Adds an authenticated peer of an existing task as a member; its connection replaces that of a predecessor. Returns
  /// an empty string, or the reason for refusing the peer.
  [[nodiscard]] std::string join(const PeerInfo& who, double now);
  void receive(std::size_t member, const Message& message, double now);
  void member_lost(std::size_t member, const std::string& why, double now);
  /// Records why a member is not connected, for messages.
  void set_absence_reason(std::size_t member, const std::string& why);
  /// Call it at least every half heartbeat_interval, after processing received messages: a member with unread messages
  /// is not silent.
  void tick(double now);

  /// The addresses of a connected member, where they become known after join().
  void set_addresses(std::size_t member, std::vector<std::string> addresses);

  /// Ends a job that finished before this coordinator began: members that come back are told so.
  void finish_at_once(double now);

  /// How to look up whether the chief's model directory records the job's end. A member's record ends the job only if
  /// it does: the member may have another directory, in which an earlier job of that name finished.
  void set_record(std::function<bool()> has_finished) { has_finished_ = std::move(has_finished); }

  [[nodiscard]] std::vector<CoordinatorAction> take_actions();

  /// The members without a connection, while gathering.
  [[nodiscard]] std::vector<std::size_t> missing_members() const;

  [[nodiscard]] std::uint64_t generation() const noexcept { return placement_.generation; }
  [[nodiscard]] bool is_running() const noexcept { return phase_ == Phase::running; }
  /// The exit code of the job; nullopt until it is over.
  [[nodiscard]] std::optional<int> exit_code() const noexcept { return exit_code_; }

  /// Adds the coordinator's view of the job.
  void add_to(JobStatus& status, double now) const;

 private:
  static constexpr double never = std::numeric_limits<double>::infinity();

  enum class Phase { gathering, running, finished };

  struct MemberSlot {
    std::string name;
    PeerInfo peer;
    bool is_connected = false;
    bool is_ready = false;
    bool is_in_world = false;       ///< takes part in the current generation, or has not confirmed its end
    bool has_acknowledged = false;  ///< received the job result, or need not
    double last_heard = 0;
    std::string leave_reason;  ///< why the member leaves; empty if it stays
    std::string absence_reason = "not connected yet";
  };

  struct RankState {
    bool ended = false;
    bool left = false;  ///< exited with 75 on request, to be restarted
  };

  void forget_actions_for(std::size_t member);

  // Gathering.
  /// After `proceed_at`, min_workers members suffice to begin a generation.
  void start_gathering(double now, double proceed_at);
  void begin_if_complete(double now);
  void report_missing(double now);
  [[nodiscard]] std::string describe_missing() const;         ///< empty if all are there and ready
  [[nodiscard]] std::string describe_wait(double now) const;  ///< why no generation begins
  /// The number of members that a generation needs.
  [[nodiscard]] std::size_t num_members_needed(double now) const noexcept;

  // Running.
  void on(std::size_t member, const Ready& message, double now);
  void on(std::size_t member, const RankEnvironment& message, double now);
  void on(std::size_t member, const Fence& message, double now);
  void on(std::size_t member, const TrainerStarted& message, double now);
  void on(std::size_t member, const Progress& message, double now);
  void on(std::size_t member, const TrainerExited& message, double now);
  void on(std::size_t member, const Failed& message, double now);
  void on(std::size_t member, const Leaving& message, double now);
  void on(std::size_t member, const Goodbye& message, double now);
  void on(std::size_t member, const TrainingDone& message, double now);
  void on(std::size_t member, const Heartbeat& message, double now);
  void on(std::size_t member, const PeersProbed& message, double now);
  template <typename Other>
  void on(std::size_t member, const Other& message, double now);

  /// True if `generation` is the running one. Throws DataError for a generation that does not exist yet.
  [[nodiscard]] bool is_current(std::uint64_t generation) const;
  void check_owner(std::size_t member, std::uint64_t rank) const;
  void end_if_all_ended(double now);
  void check_stall(double now);
  void check_start(double now);
  void check_first_steps(double now);
  void check_links(double now);
  void print_stacks();  ///< once per generation
  /// The ranks for which the others wait in a start.
  [[nodiscard]] std::vector<std::size_t> find_latecomers() const;
  void check_heartbeats(double now);

  struct Fault {
    std::size_t member = 0;
    std::optional<std::uint64_t> rank;
    std::string what;
    int code = 75;          ///< exit code of the job if no restarts are left
    bool is_leave = false;  ///< requested: does not count as a restart
    RestartCause cause = RestartCause::failed;
    bool backs_off = false;  ///< the next generations begin after growing pauses: the cause may take a while to go away
    std::string signature = {};  ///< not empty: the second fault in a row with this text ends the job
  };
  void fail(const Fault& fault, double now);
  /// Ends a generation whose ranks left on request; this does not count as a restart.
  void end_after_leave(double now);
  void end_generation(std::size_t member, const std::string& reason);
  void finish(int code, const std::string& reason, double now);
  [[nodiscard]] std::string describe_member(std::size_t member, std::optional<std::uint64_t> rank) const;

  void post(std::size_t member, Message message);
  void post_to_all(Message message);

  SupervisionTimeouts timeouts_;
  std::string run_id_;
  bool are_members_proved_;
  std::function<bool()> has_finished_;
  std::vector<MemberSlot> slots_;
  LinkProbes link_probes_;
  std::vector<CoordinatorAction> actions_;

  Phase phase_ = Phase::gathering;
  double phase_began_ = 0;
  double next_report_ = 0;
  double proceed_at_ = never;  ///< when min_workers members suffice, see start_gathering()
  double next_heartbeat_ = 0;
  double last_tick_ = 0;
  std::optional<int> exit_code_;
  std::string exit_reason_;
  bool all_acknowledged_ = false;

  // The current generation.
  Placement placement_;
  std::vector<RankState> ranks_;
  std::map<std::uint64_t, std::vector<std::optional<std::string>>> fences_;  ///< by sequence number; one blob per node
  std::vector<std::uint64_t> next_fence_;                                    ///< by node
  StallDetector stall_detector_;
  double next_start_report_ = 0;  ///< seconds since the start
  double next_link_check_ = 0;
  bool has_printed_stacks_ = false;
  double leave_by_ = never;
  bool is_done_ = false;                         ///< a Lockstep rank exited with 0, so all work is done
  std::optional<std::size_t> rejoining_member_;  ///< a member that came back and waits for the next backup

  // Progress across generations.
  std::uint64_t best_step_ = 0;
  std::uint64_t best_step_before_ = 0;  ///< best_step_ when the last generation ended
  std::map<RestartCause, std::uint64_t> restarts_by_cause_;
  int restarts_ = 0;            ///< since the last progress
  double retry_at_ = 0;         ///< when the next generation may begin
  std::string last_signature_;  ///< Fault::signature of the last generation
};

}  // namespace lockstep
