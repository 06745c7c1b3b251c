// Simulates a whole job in memory, by a simulated clock: a coordinator and members with simulated connections, and
// launchers that pretend to fork trainers. One file, because the simulation is one class.
#pragma once

#include "cluster/launcher/progress_tracker.hpp"
#include "cluster/net/frame.hpp"
#include "cluster/rendezvous/coordinator.hpp"
#include "cluster/rendezvous/member.hpp"
#include "cluster/rendezvous/message.hpp"
#include "cluster/rendezvous/supervision_timeouts.hpp"
#include "core/random.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::testing {

/// A simulated trainer.
struct SimulatedTrainer {
  bool is_stopped = false;  ///< SIGSTOP
  std::optional<int> ends_with;
};

struct SimulatedLauncher {
  std::unique_ptr<Member> member;
  std::uint64_t incarnation = 0;
  double next_attempt = 0;
  bool is_linked = false;
  bool is_frozen = false;  ///< stopped, or without network: no messages pass, and connections do not break
  bool reports_waits = true;
  bool starts_stopped = false;  ///< whether future trainers start stopped
  std::map<std::uint64_t, SimulatedTrainer> trainers;
  ProgressTracker watch{0.5};
  std::map<std::uint64_t, int> will_end_with;  ///< exit codes of trainers in future generations, by rank
  std::size_t fences = 0;
  std::size_t lost_fences = 0;
  std::vector<std::string> last_blobs;
  std::optional<double> ends_at;  ///< when the current EndGeneration completes
  double ending_takes = 0.05;
  std::size_t starts = 0;  ///< number of trainers started
  std::size_t probes = 0;  ///< rounds in which it connected to others
  std::optional<Exit> exit;
  std::vector<std::string> log;
};

class SimulatedJob {
 public:
  struct Options {
    std::size_t members = 3;
    std::uint64_t ranks_each = 1;
    std::size_t hosts = 0;  ///< number of hosts; 0: one per member
    SupervisionTimeouts timeouts{};
    std::uint64_t steps = 1000;  ///< length of the training, at 10 steps per second
    std::uint64_t seed = 1;
    bool through_frames = true;  ///< encode and decode all messages
  };

  explicit SimulatedJob(Options options) : options_(options), random_(options.seed, RandomPurpose::test, 77) {
    launchers_.resize(options_.members);
  }

  double now = 100;

  SimulatedLauncher& at(std::size_t member) { return launchers_.at(member); }
  Coordinator& coordinator() { return *coordinator_; }

  void start(std::size_t number) {
    SimulatedLauncher fresh;
    fresh.incarnation = ++incarnations_;
    fresh.ending_takes = launchers_[number].ending_takes;
    fresh.will_end_with = launchers_[number].will_end_with;
    fresh.member = std::make_unique<Member>(number, "worker 0 (a:1)", options_.timeouts, now);
    launchers_[number] = std::move(fresh);
    if (number == 0) {
      std::vector<std::string> names;
      for (std::size_t i = 0; i < options_.members; ++i) names.push_back("worker " + std::to_string(i));
      coordinator_ =
          std::make_unique<Coordinator>(names, "run" + std::to_string(incarnations_), options_.timeouts, now);
      to_member_.clear();
      to_coordinator_.clear();
      connect(0);
    }
  }

  void start_all() {
    for (std::size_t number = 0; number < launchers_.size(); ++number) start(number);
  }

  /// Kills a launcher and its trainers, as when a node is switched off. `is_seen`: whether the others see the
  /// connection break.
  void kill(std::size_t number, bool is_seen = true) {
    launchers_[number].member.reset();
    launchers_[number].trainers.clear();
    const bool was_linked = std::exchange(launchers_[number].is_linked, false);
    if (number == 0) {
      coordinator_.reset();
      for (std::size_t other = 1; other < launchers_.size(); ++other) {
        if (launchers_[other].is_linked && is_seen) cut(other);
      }
    } else if (was_linked && is_seen && coordinator_) {
      deliver_from(number);
      coordinator_->member_lost(number, "the connection broke", now);
      pump();
    }
  }

  /// Breaks a connection. Both sides see it.
  void cut(std::size_t number) {
    SimulatedLauncher& launcher = launchers_[number];
    if (!std::exchange(launcher.is_linked, false)) return;
    launcher.next_attempt = now + 0.5;
    to_member_[number].clear();
    to_coordinator_[number].clear();
    if (coordinator_) coordinator_->member_lost(number, "the connection broke", now);
    if (launcher.member) launcher.member->disconnected("the connection broke", now);
    pump();
  }

  void end_trainer(std::uint64_t rank, int code, int signal = 0) {
    for (SimulatedLauncher& launcher : launchers_) {
      if (!launcher.member || launcher.trainers.erase(rank) == 0) continue;
      launcher.watch.end(rank);
      launcher.member->trainer_exited(
          {.rank = rank, .code = static_cast<std::uint64_t>(code), .signal = static_cast<std::uint64_t>(signal)});
    }
    pump();
  }

  SimulatedTrainer& trainer(std::uint64_t rank) {
    for (SimulatedLauncher& launcher : launchers_) {
      if (const auto it = launcher.trainers.find(rank); it != launcher.trainers.end()) return it->second;
    }
    throw std::runtime_error("no such trainer");
  }

  std::size_t trainers() const {
    std::size_t all = 0;
    for (const SimulatedLauncher& launcher : launchers_) all += launcher.trainers.size();
    return all;
  }

  /// Whether the generation runs and has exactly one trainer for each rank.
  bool all_train() const {
    if (!coordinator_ || !coordinator_->is_running()) return false;
    const std::size_t ranks = launchers_[0].member ? launchers_[0].member->placement().ranks.size() : 0;
    return ranks > 0 && trainers() == ranks;
  }

  bool all_exited() const {
    return std::all_of(launchers_.begin(), launchers_.end(),
                       [](const auto& it) { return it.member == nullptr || it.exit.has_value(); });
  }

  bool some_exited() const {
    return std::any_of(launchers_.begin(), launchers_.end(), [](const auto& it) { return it.exit.has_value(); });
  }

  void run(double seconds, double tick = 0.1) {
    const double end = now + seconds;
    while (now < end) step(tick);
  }

  /// Returns false if the condition does not become true in time.
  template <typename Condition>
  bool run_until(Condition condition, double seconds, double tick = 0.1) {
    const double end = now + seconds;
    while (!condition()) {
      if (now >= end) return false;
      step(tick);
    }
    return true;
  }

  bool logged(std::size_t number, const std::string& text) const { return count_logged(number, text) > 0; }
  std::size_t count_logged(std::size_t number, const std::string& text) const {
    const std::vector<std::string>& log = launchers_.at(number).log;
    return static_cast<std::size_t>(std::count_if(
        log.begin(), log.end(), [&](const std::string& it) { return it.find(text) != std::string::npos; }));
  }

  std::uint64_t saved_step = 0;  ///< the step of the last backup, where trainers begin; every tenth step has one
  std::uint64_t step_now = 0;
  bool all_wait = false;  ///< trainers, for each other
  std::size_t messages = 0;
  std::set<std::pair<std::uint64_t, std::uint64_t>> cut_links;  ///< from a member to another one
  std::vector<std::string> worlds;                              ///< names of the worlds in the order of their start

 private:
  void step(double tick) {
    now += tick;
    for (std::size_t number = 0; number < launchers_.size(); ++number) {
      SimulatedLauncher& launcher = launchers_[number];
      if (!launcher.member || launcher.is_frozen || launcher.exit) continue;
      if (launcher.ends_at && now >= *launcher.ends_at) {
        launcher.ends_at.reset();
        launcher.trainers.clear();
        launcher.watch = ProgressTracker(0.5);
        launcher.member->all_ended();
      }
      if (!launcher.is_linked) launcher.member->disconnected("the peer closed the connection", now);  // if it was
      if (!launcher.is_linked && now >= launcher.next_attempt) connect(number);
      launcher.member->tick(now);
      if (launcher.member->take_disconnect_request()) {
        launcher.is_linked = false;
        launcher.next_attempt = now + 0.5;
        if (coordinator_) coordinator_->member_lost(number, "the peer closed the connection", now);
      }
    }
    train();
    for (SimulatedLauncher& launcher : launchers_) {
      if (!launcher.member || launcher.is_frozen) continue;
      for (const Progress& report : launcher.watch.take_due_reports(now)) launcher.member->progress(report);
    }
    pump();
    if (coordinator_ && !launchers_[0].is_frozen) coordinator_->tick(now);
    pump();
  }

  void connect(std::size_t number) {
    SimulatedLauncher& launcher = launchers_[number];
    launcher.next_attempt = now + 0.5;
    if (!coordinator_ || launchers_[0].is_frozen) {
      launcher.member->unreachable("connection refused");
      return;
    }
    const std::size_t host = options_.hosts == 0 ? number : number % options_.hosts;
    const PeerInfo who{number,
                       launcher.incarnation,
                       "host " + std::to_string(host),
                       "node-" + std::to_string(host),
                       "10.0.0." + std::to_string(number),
                       options_.ranks_each,
                       {},
                       number == 0 ? 0U : 5000U};
    const std::string objection = coordinator_->join(who, now);
    if (!objection.empty()) {
      launcher.member->unreachable(objection);
      return;
    }
    launcher.is_linked = true;
    to_member_[number].clear();
    to_coordinator_[number].clear();
    launcher.member->connected(now);
    pump();
  }

  Message carry(const Message& message) {
    ++messages;
    if (!options_.through_frames) return message;
    return to_message(to_frame(message));
  }

  void deliver_from(std::size_t number) {
    std::deque<Message> said = std::exchange(to_coordinator_[number], {});
    for (const Message& message : said) {
      if (coordinator_) coordinator_->receive(number, message, now);
    }
  }

  void pump() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t number = 0; number < launchers_.size(); ++number) moved |= pump_member(number);
      if (!coordinator_ || launchers_[0].is_frozen) continue;
      for (CoordinatorAction& action : coordinator_->take_actions()) {
        moved = true;
        if (auto* send = std::get_if<Send>(&action)) {
          const Message message = carry(send->message);
          for (const std::size_t to : send->to) to_member_[to].push_back(message);
        } else if (const auto* disconnect = std::get_if<Disconnect>(&action)) {
          SimulatedLauncher& launcher = launchers_[disconnect->member];
          to_member_[disconnect->member].clear();
          to_coordinator_[disconnect->member].clear();
          if (std::exchange(launcher.is_linked, false) && launcher.member) {
            launcher.next_attempt = now + 0.5;
            if (launcher.is_frozen) continue;  // it will find that out
            launcher.member->disconnected("the peer closed the connection", now);
          }
        }
      }
    }
  }

  bool pump_member(std::size_t number) {
    SimulatedLauncher& launcher = launchers_[number];
    if (!launcher.member || launcher.is_frozen) return false;
    bool moved = false;
    if (launcher.is_linked) {
      for (const Message& message : std::exchange(to_member_[number], {})) {
        moved = true;
        launcher.member->receive(message, now);
      }
    }
    if (const std::optional<ProbePeers> request = launcher.member->take_probe_request()) {
      ++launcher.probes;
      PeersProbed result{request->round, {}};
      for (const ProbeTarget& target : request->targets) {
        if (cut_links.contains({number, target.member})) result.unreachable.push_back({target.member, "no answer"});
      }
      launcher.member->peers_probed(std::move(result));
    }
    for (Message& message : launcher.member->take_messages()) {
      moved = true;
      if (launcher.is_linked) to_coordinator_[number].push_back(carry(message));
    }
    if (coordinator_ && !launchers_[0].is_frozen && !to_coordinator_[number].empty()) {
      moved = true;
      deliver_from(number);
    }
    for (LauncherAction& action : launcher.member->take_actions()) {
      moved = true;
      perform(number, action);
    }
    return moved;
  }

  void perform(std::size_t number, LauncherAction& action) {
    SimulatedLauncher& launcher = launchers_[number];
    if (const auto* serve = std::get_if<StartPmixServer>(&action)) {
      const Placement& map = launcher.member->placement();
      if (number == map.nodes.at(0).server) worlds.push_back(map.nspace);
      launcher.member->fence("blob of node " + std::to_string(serve->node));
      launcher.member->fence("");
      for (const std::uint64_t rank : map.ranks_of_node(serve->node)) {
        launcher.member->environment(rank, {{"PMIX_RANK", std::to_string(rank)}});
      }
    } else if (const auto* start = std::get_if<StartTrainer>(&action)) {
      if (start->variables.at("PMIX_RANK") != std::to_string(start->rank))
        throw std::runtime_error("wrong environment");
      ++launcher.starts;
      everybody_leaves_ = false;
      leaves_with_backup_ = false;
      launcher.trainers[start->rank].is_stopped = launcher.starts_stopped;
      launcher.member->started(start->rank);
      launcher.watch.begin(start->rank);
      launcher.watch.update(start->rank, {}, now);
      if (const auto it = launcher.will_end_with.find(start->rank); it != launcher.will_end_with.end()) {
        launcher.trainers[start->rank].ends_with = it->second;
      }
    } else if (auto* fence = std::get_if<AnswerFence>(&action)) {
      if (fence->is_lost) {
        ++launcher.lost_fences;
      } else {
        ++launcher.fences;
        if (fence->sequence == 0) launcher.last_blobs = fence->blobs;
      }
    } else if (std::holds_alternative<StopAfterThisStep>(action)) {
      everybody_leaves_ = true;
    } else if (std::holds_alternative<StopAfterNextBackup>(action)) {
      leaves_with_backup_ = true;
    } else if (std::holds_alternative<EndGeneration>(action)) {
      launcher.ends_at = now + launcher.ending_takes;
    } else if (const auto* exit = std::get_if<Exit>(&action)) {
      launcher.exit = *exit;
    } else if (const auto* line = std::get_if<Log>(&action)) {
      launcher.log.push_back(line->text);
    }
  }

  /// Runs a step if all ranks can.
  void train() {
    if (!all_train()) {
      is_training_ = false;
      return;
    }
    if (!std::exchange(is_training_, true)) step_now = saved_step;
    bool is_stuck = all_wait;
    for (SimulatedLauncher& launcher : launchers_) {
      for (auto& [rank, trainer] : launcher.trainers) is_stuck |= trainer.is_stopped;
    }
    if (!is_stuck) ++step_now;
    if (!is_stuck && step_now % 10 == 0) {
      saved_step = step_now;
      everybody_leaves_ |= leaves_with_backup_;
    }
    if (everybody_leaves_) saved_step = step_now;
    for (SimulatedLauncher& launcher : launchers_) {
      if (launcher.is_frozen) continue;
      const std::map<std::uint64_t, SimulatedTrainer> trainers = launcher.trainers;
      for (const auto& [rank, trainer] : trainers) {
        if (trainer.is_stopped) continue;
        Progress report;
        report.rank = rank;
        report.step = step_now;
        report.activity = is_stuck && launcher.reports_waits ? Activity::waiting : Activity::training;
        report.max_silent_seconds = 0.1;
        if (!is_stuck || launcher.reports_waits) launcher.watch.update(rank, report, now);
        std::optional<int> end = trainer.ends_with;
        if (everybody_leaves_) end = 75;
        if (!end && step_now >= options_.steps) end = 0;
        if (!end) continue;
        launcher.trainers.erase(rank);
        launcher.watch.end(rank);
        launcher.member->trainer_exited({.rank = rank, .code = static_cast<std::uint64_t>(*end)});
      }
    }
    everybody_leaves_ = false;
  }

  Options options_;
  RandomStream random_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<SimulatedLauncher> launchers_;
  std::map<std::size_t, std::deque<Message>> to_member_;
  std::map<std::size_t, std::deque<Message>> to_coordinator_;
  std::uint64_t incarnations_ = 0;
  bool is_training_ = false;
  bool everybody_leaves_ = false;
  bool leaves_with_backup_ = false;
};

inline void check_all_exit_with(SimulatedJob& job, std::size_t members, int code, const std::string& message,
                                double within = 10) {
  REQUIRE(job.run_until([&]() { return job.all_exited(); }, within));
  for (std::size_t number = 0; number < members; ++number) {
    CAPTURE(number);
    REQUIRE(job.at(number).exit.has_value());
    CHECK(job.at(number).exit->code == code);
    CHECK(job.at(number).exit->message.find(message) != std::string::npos);
  }
}

/// Returns the coordinator's pending messages to one connected member.
inline std::vector<Message> messages_to(Coordinator& coordinator, std::size_t member) {
  std::vector<Message> said;
  for (const CoordinatorAction& action : coordinator.take_actions()) {
    const auto* send = std::get_if<Send>(&action);
    if (send != nullptr && std::count(send->to.begin(), send->to.end(), member) > 0) said.push_back(send->message);
  }
  return said;
}

inline PeerInfo peer_info(std::uint64_t member, std::uint64_t incarnation = 1) {
  return {member, incarnation, "host " + std::to_string(member), "node", "10.0.0.1", 1};
}

}  // namespace lockstep::testing
