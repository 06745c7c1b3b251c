// The part of the chief's launcher that all launchers talk to: who is there, which generation runs, what ended it, when
// the job is over. It knows no sockets and no clock: events and the time go in, actions come out.
//
//   gathering --all are there and Ready--> running --all ranks ended with 0--> finished
//       ^                                    |  \--an error that no restart mends, too many restarts--> finished
//       \----- a rank or member failed ------/        (from gathering: also where somebody does not come in time)
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cluster/job_status.hpp"
#include "cluster/message.hpp"
#include "cluster/step_watch.hpp"
#include "cluster/supervision.hpp"
#include "cluster/world_map.hpp"

namespace lockstep {

/// Send the same to all of these members.
struct Post {
  std::vector<std::size_t> to;
  Message message;
};

/// End this member's connection; no lose() shall follow.
struct HangUp {
  std::size_t member = 0;
};

/// All have heard the verdict and end, or will never: once what was posted is sent, the chief may end.
struct AllHeard {};

using CoordinatorAction = std::variant<Post, HangUp, AllHeard>;

class Coordinator {
 public:
  /// `tasks`: the members' names ("worker 1"), the chief's first. `run`: what no other run has, for names of worlds.
  Coordinator(const std::vector<std::string>& tasks, std::string run, const Supervision& limits, double now);

  // Events. Time never goes back.

  /// A peer has proved that it belongs to the job, and is of a task that exists: empty where it is a member now, else
  /// the sentence that refuses it. Its connection takes the place of a predecessor's, if there is one.
  [[nodiscard]] std::string admit(const Introduction& who, double now);
  void receive(std::size_t member, const Message& message, double now);
  void lose(std::size_t member, const std::string& why, double now);
  /// What is known of a member that is not there.
  void explain(std::size_t member, const std::string& why);
  /// At least every half heartbeat. Read what came in before: what lies in a buffer is no silence.
  void tick(double now);

  [[nodiscard]] std::vector<CoordinatorAction> take_actions();

  /// Those without a connection, while they are waited for.
  [[nodiscard]] std::vector<std::size_t> missing() const;

  [[nodiscard]] std::uint64_t generation() const noexcept { return map_.generation; }
  [[nodiscard]] bool is_running() const noexcept { return phase_ == Phase::running; }
  /// The exit code of the job, once it is over.
  [[nodiscard]] std::optional<int> verdict() const noexcept { return verdict_; }

  /// Adds what the coordinator knows of the job.
  void add_to(JobStatus& status, double now) const;

 private:
  static constexpr double never = std::numeric_limits<double>::infinity();

  enum class Phase { gathering, running, finished };

  struct Seat {
    std::string name;
    Introduction who;
    bool present = false;
    bool ready = false;
    bool in_world = false;    ///< of the generation that runs, or whose end it has not confirmed
    bool took_leave = false;  ///< it has heard the verdict and ends, or need not
    double heard = 0;
    std::string leaving;  ///< why it was told to go, if it was
    std::string missing = "it has not come yet";
  };

  struct RankState {
    bool ended = false;
    bool left = false;  ///< ended to come back
  };

  void forget_actions_for(std::size_t member);

  // Gathering.
  /// Members without whom a generation can begin are waited for until `go_on_at`.
  void gather(double now, double go_on_at);
  void begin_if_complete(double now);
  void report_missing(double now);
  [[nodiscard]] std::string describe_missing() const;
  /// Members that a generation needs.
  [[nodiscard]] std::size_t needed(double now) const noexcept;

  // Running.
  void on(std::size_t member, const Ready& message, double now);
  void on(std::size_t member, const RankEnvironment& message, double now);
  void on(std::size_t member, const Fence& message, double now);
  void on(std::size_t member, const Started& message, double now);
  void on(std::size_t member, const Progress& message, double now);
  void on(std::size_t member, const ChildEnded& message, double now);
  void on(std::size_t member, const Failed& message, double now);
  void on(std::size_t member, const Leaving& message, double now);
  void on(std::size_t member, const Farewell& message, double now);
  void on(std::size_t member, const Done& message, double now);
  void on(std::size_t member, const Heartbeat& message, double now);
  template <typename Other>
  void on(std::size_t member, const Other& message, double now);

  /// Is it about what runs? Throws DataError where it cannot be about anything.
  [[nodiscard]] bool is_current(std::uint64_t generation) const;
  void check_owner(std::size_t member, std::uint64_t rank) const;
  void end_if_all_ended(double now);
  void watch_steps(double now);
  void watch_members(double now);

  struct Fault {
    std::size_t member = 0;
    std::optional<std::uint64_t> rank;
    std::string what;
    int code = 75;          ///< of the job, if this was the last restart
    bool is_leave = false;  ///< wanted: no restart is spent on it
  };
  void fail(const Fault& fault, double now);
  /// Ranks have left, on request: the generation ends, and spends no restart.
  void end_after_leave(double now);
  void end_generation(std::size_t member, const std::string& reason);
  void finish(int code, const std::string& reason, double now);
  [[nodiscard]] std::string name_of_place(std::size_t member, std::optional<std::uint64_t> rank) const;

  void post(std::size_t member, Message message);
  void post_to_all(Message message);

  Supervision limits_;
  std::string run_;
  std::vector<Seat> seats_;
  std::vector<CoordinatorAction> actions_;

  Phase phase_ = Phase::gathering;
  double phase_began_ = 0;
  double next_report_ = 0;
  double go_on_at_ = never;  ///< with those who are there
  double next_heartbeat_ = 0;
  double last_tick_ = 0;
  std::optional<int> verdict_;
  std::string verdict_reason_;
  bool all_heard_ = false;

  // Of the generation that runs.
  WorldMap map_;
  std::vector<RankState> ranks_;
  std::map<std::uint64_t, std::vector<std::optional<std::string>>> fences_;  ///< by sequence; a part for each node
  std::vector<std::uint64_t> next_fence_;                                    ///< by node
  StepWatch watch_;
  double leave_by_ = never;
  bool is_done_ = false;                ///< what is left of it has nothing to do any more
  std::optional<std::size_t> lets_in_;  ///< a member that is back, and waits for the next backup

  // Progress over generations.
  std::uint64_t best_step_ = 0;
  std::uint64_t best_step_before_ = 0;  ///< when the last generation ended
  int restarts_ = 0;                    ///< since there was progress
};

}  // namespace lockstep
