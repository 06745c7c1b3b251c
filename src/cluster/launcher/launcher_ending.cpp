// See launcher.hpp. This file ends trainers, and notices those that ended or were stopped.
#include "cluster/launcher/launcher.hpp"

#include "cluster/net/format_seconds.hpp"
#include "core/cgroup.hpp"
#include "core/fault_point.hpp"
#include "core/killed_process.hpp"
#include "core/log.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr double grace_s = 3;        // between SIGTERM and SIGKILL
constexpr double unkillable_s = 10;  // from SIGKILL until a launcher that is to exit waits no more

std::string format_mebibytes(std::uint64_t bytes) {
  return fmt::format("{:.0f} MiB", std::ceil(static_cast<double>(bytes) / (1U << 20U)));
}

/// Whether this process, whose standard streams the trainers inherit, prints to a pipe without a reader.
bool is_unread() {
  std::array<pollfd, 2> streams{pollfd{STDOUT_FILENO, 0, 0}, pollfd{STDERR_FILENO, 0, 0}};
  return poll(streams.data(), streams.size(), 0) > 0 &&
         std::ranges::any_of(streams, [](const pollfd& stream) { return (stream.revents & POLLERR) != 0; });
}

}  // namespace

/// Detects processes stopped by SIGSTOP. Without this, a stopped trainer between steps goes unnoticed until
/// --busy-timeout, as does a stopped PMIx server, for which trainers wait when they end.
void Launcher::check_for_stopped_processes() {
  if (!looks_for_stopped_processes() || !next_stop_check_.passed()) return;
  next_stop_check_ = Deadline::after(timeouts_.heartbeat_interval / 2);
  std::vector<std::pair<std::string, pid_t>> processes;
  for (const auto& [rank, trainer] : trainers_)
    processes.emplace_back(fmt::format("trainer of rank {}", rank), trainer->id());
  if (server_) processes.emplace_back("PMIx server", server_->pid());
  for (const auto& [name, process] : processes) {
    if (process_state(process) != 'T') {
      stopped_.erase(name);
    } else if (stopped_.try_emplace(name, Deadline::after(timeouts_.stall_timeout)).first->second.passed()) {
      rendezvous_.member().failed(fmt::format("the {} was stopped (SIGSTOP) and did not continue within {}", name,
                                              format_seconds(timeouts_.stall_timeout)));
      return;
    }
  }
}

void Launcher::reap_trainers() {
  for (auto entry = trainers_.begin(); entry != trainers_.end();) {
    const pid_t process = entry->second->id();
    std::optional<ProcessExit> end = entry->second->reap();
    if (end) {
      const bool is_unread_pipe = end->signal == SIGPIPE && is_unread();
      // As a launcher's own rendezvous, which ends the job when its time is over.
      const bool is_final = is_unread_pipe || (trainers_are_tasks_ && end->tasks_never_came);
      if (is_unread_pipe) {
        log_error(fmt::format(
            "rank {} was ended by a write to a pipe that nothing reads any more; keep the pipe's reader running, or "
            "write to a file",
            entry->first));
        *end = {.code = static_cast<int>(ExitCode::io), .is_wrapper = end->is_wrapper};
      }
      record_event({.what = "end", .generation = rendezvous_.member().placement().nspace, .trainer = process});
      rendezvous_.member().trainer_exited({.rank = entry->first,
                                           .code = static_cast<std::uint64_t>(end->code),
                                           .signal = static_cast<std::uint64_t>(end->signal),
                                           .out_of_memory = end->signal == SIGKILL ? take_out_of_memory() : "",
                                           .error = end->error,
                                           .is_wrapper = end->is_wrapper,
                                           .is_final = is_final},
                                          progress_tracker_.has_reported(entry->first));
      progress_tracker_.end(entry->first);
    }
    entry = end ? trainers_.erase(entry) : std::next(entry);
  }
}

/// What the kernel reports about a process of this container that it killed for memory; empty if it killed none.
std::string Launcher::take_out_of_memory() {
  const MemoryGroup memory = read_memory_group();
  if (memory.oom_kills <= std::exchange(oom_kills_, memory.oom_kills)) return "";
  std::string text = "out of memory";
  if (memory.limit_bytes)
    text += fmt::format(": the limit of this container is {}", format_mebibytes(*memory.limit_bytes));
  if (memory.peak_bytes) text += fmt::format(", its peak was {}", format_mebibytes(*memory.peak_bytes));
  return text + "; raise memory_limit, or use a smaller batch";
}

/// SIGKILL does not end a process that the kernel does not wake, as on a lost network file system.
void Launcher::report_unkillable() {
  if (!report_unkillable_at_.passed()) return;
  report_unkillable_at_ = Deadline::after(timeouts_.report_interval);
  for (const auto& [rank, trainer] : trainers_) {
    log_warning(
        fmt::format("the trainer of rank {} was killed but has not ended: its process is in state {}; check the "
                    "host's disks and network file systems",
                    rank, trainer->describe_state()));
  }
}

/// A restart waits for the old trainer, which may hold the model directory's lock or a GPU; --rendezvous-timeout bounds
/// that. An exit waits for nothing: init gets the process.
void Launcher::leave_unkillable_behind() {
  if (!leave_behind_at_.passed() || !rendezvous_.member().is_exiting()) return;
  for (const auto& [rank, trainer] : trainers_) {
    trainer->leave_behind(fmt::format("the trainer of rank {}", rank));
    rendezvous_.member().trainer_exited({.rank = rank, .signal = SIGKILL});
    progress_tracker_.end(rank);
  }
  trainers_.clear();
}

void Launcher::finish_ending() {
  if (leave_by_.passed()) {
    log_warning(fmt::format(
        "trainers did not save and exit within {} (--leave-timeout); stopping them, so the steps since the last "
        "backup will be repeated",
        format_seconds(timeouts_.leave_timeout)));
    stop_trainers();
  }
  if (kill_at_.passed()) {
    for (const auto& [rank, trainer] : trainers_) trainer->signal(SIGKILL);
    kill_at_ = Deadline::never();
    report_unkillable_at_ = Deadline::after(timeouts_.report_interval);
    leave_behind_at_ = Deadline::after(unkillable_s);
  }
  if (!trainers_.empty()) {
    report_unkillable();
    leave_unkillable_behind();
  }
  if (!is_ending_ || !trainers_.empty()) return;
  server_.reset();
  directories_.reset();
  served_ranks_.clear();
  fences_.clear();
  kill_at_ = Deadline::never();
  report_unkillable_at_ = Deadline::never();
  leave_behind_at_ = Deadline::never();
  leave_by_ = Deadline::never();
  is_ending_ = false;
  has_trained_ = false;
  stopped_.clear();
  rendezvous_.member().all_ended();
}

void Launcher::stop_trainers() {
  leave_by_ = Deadline::never();
  for (const auto& [rank, trainer] : trainers_) {
    trainer->signal(SIGTERM);
    trainer->signal(SIGCONT);  // a stopped process handles SIGTERM only after SIGCONT
  }
  kill_at_ = Deadline::after(grace_s);
}

}  // namespace lockstep
