// Launchers in one process that communicate over the loopback interface and pretend to fork trainers.
#pragma once

#include "cluster/rendezvous/rendezvous.hpp"
#include "core/clock.hpp"
#include "resident_memory.hpp"
#include "support/catch.hpp"
#include "support/sockets.hpp"

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::testing {

inline ClusterSpec cluster(std::size_t workers, std::uint16_t chief_port, const std::string& host = "127.0.0.1") {
  ClusterSpec spec;
  for (std::size_t i = 0; i < workers; ++i) {
    const auto port = i == 0 ? chief_port : static_cast<std::uint16_t>(20'000 + i);
    spec.tasks.push_back({TaskType::worker, static_cast<int>(i), {host, port}});
  }
  return spec;
}

/// Options with short timeouts, for quick tests.
inline RendezvousOptions quick() {
  RendezvousOptions options;
  options.timeouts.heartbeat_interval = 0.1;
  options.timeouts.heartbeat_timeout = 1.5;
  options.timeouts.report_interval = 1;
  options.timeouts.rendezvous_timeout = 60;
  options.timeouts.handshake_timeout = 1;
  options.timeouts.max_reconnect_delay = 0.2;
  options.timeouts.goodbye_timeout = 1;
  return options;
}

/// A launcher that pretends to fork trainers.
struct ForklessLauncher {
  Rendezvous rendezvous;
  std::size_t trainers = 0;
  std::size_t fences = 0;
  std::uint64_t step = 0;
  bool ends_generations = true;
  std::optional<Exit> exit;
  std::vector<std::string> log;

  ForklessLauncher(ClusterSpec spec, std::size_t rank, const RendezvousOptions& options)
      : rendezvous((spec.rank = rank, spec), 1, options) {}

  void perform() {
    Member& member = rendezvous.member();
    for (LauncherAction& action : rendezvous.take_actions()) {
      if (const auto* server = std::get_if<StartPmixServer>(&action)) {
        (void)member.fence("blob");
        for (const std::uint64_t rank : member.placement().ranks_of_node(server->node)) {
          member.environment(rank, {{"PMIX_RANK", std::to_string(rank)}});
        }
      } else if (const auto* start = std::get_if<StartTrainer>(&action)) {
        ++trainers;
        member.started(start->rank);
      } else if (const auto* fence = std::get_if<AnswerFence>(&action)) {
        if (!fence->is_lost) ++fences;
      } else if (std::holds_alternative<EndGeneration>(action)) {
        trainers = 0;
        if (ends_generations) member.all_ended();
      } else if (const auto* end = std::get_if<Exit>(&action)) {
        exit = *end;
      } else if (const auto* line = std::get_if<Log>(&action)) {
        log.push_back(line->text);
      }
    }
  }

  bool logged(const std::string& text) const {
    return std::any_of(log.begin(), log.end(), [&](const auto& it) { return it.find(text) != std::string::npos; });
  }

  void end_training() {
    const std::vector<std::uint64_t> ranks = rendezvous.member().placement().ranks_of_member(number());
    trainers = 0;
    for (const std::uint64_t rank : ranks) rendezvous.member().trainer_exited({.rank = rank});
  }

  std::size_t index = 0;
  std::size_t number() const { return index; }
};

/// Several launchers in one process, driven by one loop.
class LauncherGroup {
 public:
  LauncherGroup(ClusterSpec spec, RendezvousOptions options) : options(std::move(options)), spec_(std::move(spec)) {
    launchers.resize(spec_.tasks.size());
  }

  RendezvousOptions options;
  std::vector<std::unique_ptr<ForklessLauncher>> launchers;
  double max_round = 0;

  ForklessLauncher& start(std::size_t rank) {
    if (options.host.find("each") == 0) options.host = "each on its own " + std::to_string(rank);
    launchers[rank] = std::make_unique<ForklessLauncher>(spec_, rank, options);
    launchers[rank]->index = rank;
    return *launchers[rank];
  }

  void start_all() {
    for (std::size_t rank = 0; rank < launchers.size(); ++rank) start(rank);
  }

  ForklessLauncher& at(std::size_t rank) { return *launchers.at(rank); }

  void round() {
    std::vector<pollfd> polled;
    int timeout = 250;
    for (const auto& launcher : launchers) {
      if (!launcher || launcher->exit) continue;
      launcher->rendezvous.collect(polled);
      timeout = std::min(timeout, launcher->rendezvous.timeout_ms());
    }
    (void)poll(polled.data(), polled.size(), timeout);
    const double began = monotonic_seconds();
    for (const auto& launcher : launchers) {
      if (!launcher || launcher->exit) continue;
      launcher->rendezvous.handle(polled);
      launcher->perform();
    }
    max_round = std::max(max_round, monotonic_seconds() - began);
  }

  template <typename Condition>
  bool run_until(Condition condition, double seconds) {
    const Deadline deadline = Deadline::after(seconds);
    while (!condition()) {
      if (deadline.passed()) return false;
      round();
    }
    return true;
  }

  void run(double seconds) {
    (void)run_until([]() { return false; }, seconds);
  }

  bool all_train() const {
    return std::all_of(launchers.begin(), launchers.end(), [](const auto& it) { return !it || it->trainers == 1; });
  }

  bool all_exited() const {
    return std::all_of(launchers.begin(), launchers.end(), [](const auto& it) { return !it || it->exit; });
  }

 private:
  ClusterSpec spec_;
};

inline void allow_many_files() {
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 16384);
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/// Runs `work` in a child process, which the destructor kills.
class ForkedWork {
 public:
  explicit ForkedWork(const std::function<void()>& work) : process_(fork()) {
    REQUIRE(process_ >= 0);
    if (process_ == 0) {
      try {
        work();
      } catch (...) {
        _exit(1);
      }
      _exit(0);
    }
  }
  ~ForkedWork() {
    if (process_ > 0) {
      (void)kill(process_, SIGKILL);
      (void)waitpid(process_, nullptr, 0);
    }
  }
  ForkedWork(const ForkedWork&) = delete;
  ForkedWork& operator=(const ForkedWork&) = delete;

  /// Returns whether the child succeeded, once it has exited; nullopt before.
  std::optional<bool> ended() {
    int status = 0;
    if (process_ <= 0 || waitpid(process_, &status, WNOHANG) != process_) return {};
    process_ = -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t process_;
};

}  // namespace lockstep::testing
