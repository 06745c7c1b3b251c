// See coordinator.hpp. This file handles the messages of members while a generation runs.
#include "cluster/rendezvous/coordinator.hpp"

#include "cluster/net/format_seconds.hpp"
#include "core/printable.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

constexpr int usage = static_cast<int>(ExitCode::usage);
constexpr int data = static_cast<int>(ExitCode::data);
constexpr int internal = static_cast<int>(ExitCode::internal);
constexpr int io = static_cast<int>(ExitCode::io);
constexpr int temporary = static_cast<int>(ExitCode::temporary);
constexpr std::size_t max_latecomers = 8;  // named in one line

/// With the message of a rank other than 0, because users look at the output of rank 0.
std::string describe(const TrainerExited& end) {
  const std::string error = end.rank == 0 || end.error.empty() ? "" : " (" + printable_line(end.error) + ")";
  if (end.signal == 0) return fmt::format("its trainer ended with exit code {}{}", end.code, error);
  const char* name = end.signal < NSIG ? sigdescr_np(static_cast<int>(end.signal)) : nullptr;
  if (!end.out_of_memory.empty()) return "its trainer was killed: " + printable_line(end.out_of_memory);
  return fmt::format("its trainer was killed by signal {}{}", end.signal,
                     name == nullptr ? "" : fmt::format(" ({})", name));
}

}  // namespace

void Coordinator::receive(std::size_t member, const Message& message, double now) {
  MemberSlot& slot = slots_.at(member);
  if (!slot.is_connected) return;  // sent before its connection was closed
  slot.last_heard = now;
  try {
    std::visit([&](const auto& it) { on(member, it, now); }, message);
  } catch (const DataError& error) {
    actions_.emplace_back(Disconnect{member});
    member_lost(member, fmt::format("it sent an invalid {}: {}", message_name(message), error.what()), now);
  }
}

template <typename Other>
void Coordinator::on(std::size_t /*member*/, const Other& /*message*/, double /*now*/) {
  throw DataError("members do not send it");
}

void Coordinator::on(std::size_t /*member*/, const Heartbeat& /*message*/, double /*now*/) {}

void Coordinator::on(std::size_t member, const Ready& /*message*/, double now) {
  MemberSlot& slot = slots_[member];
  if (phase_ == Phase::running && slot.is_in_world) throw DataError("its trainers are still running");
  slot.is_in_world = false;
  slot.is_ready = true;
  begin_if_complete(now);
  if (phase_ != Phase::running || slot.is_in_world || timeouts_.min_workers == 0) return;
  post_to_all(Notice{slot.name + " is back and joins after the next backup"});
  if (!rejoining_member_) post(placement_.ranks.front().member, Admit{placement_.generation});
  rejoining_member_ = member;
}

bool Coordinator::is_current(std::uint64_t generation) const {
  if (generation > placement_.generation) throw DataError(fmt::format("generation {} does not exist yet", generation));
  return phase_ == Phase::running && generation == placement_.generation;
}

void Coordinator::check_owner(std::size_t member, std::uint64_t rank) const {
  if (rank >= placement_.ranks.size() || placement_.ranks[rank].member != member) {
    throw DataError(fmt::format("rank {} belongs to another member", rank));
  }
}

void Coordinator::on(std::size_t member, const RankEnvironment& message, double /*now*/) {
  if (!is_current(message.generation)) return;
  if (message.rank >= placement_.ranks.size() || placement_.server_of(message.rank) != member) {
    throw DataError(fmt::format("it does not serve rank {}", message.rank));
  }
  post(placement_.ranks[message.rank].member, message);
}

void Coordinator::on(std::size_t member, const Fence& message, double /*now*/) {
  if (!is_current(message.generation)) return;
  const std::optional<std::size_t> node = placement_.node_served_by(member);
  if (!node) throw DataError("it runs no PMIx server");
  if (message.sequence != next_fence_[*node]) throw DataError("its fences are out of order");
  ++next_fence_[*node];
  auto& blobs = fences_[message.sequence];
  blobs.resize(placement_.nodes.size());
  blobs[*node] = message.blob;
  if (!std::all_of(blobs.begin(), blobs.end(), [](const auto& blob) { return blob.has_value(); })) return;

  FenceDone done{message.generation, message.sequence, {}};
  for (std::optional<std::string>& blob : blobs) done.blobs.push_back(std::move(*blob));
  fences_.erase(message.sequence);
  std::vector<std::size_t> servers;
  for (const Node& each : placement_.nodes) servers.push_back(each.server);
  actions_.emplace_back(Send{std::move(servers), std::move(done)});
}

void Coordinator::on(std::size_t member, const TrainerStarted& message, double /*now*/) {
  if (is_current(message.generation)) check_owner(member, message.rank);
}

void Coordinator::on(std::size_t member, const Progress& message, double now) {
  if (!is_current(message.generation)) return;
  check_owner(member, message.rank);
  stall_detector_.update(message, now);
  best_step_ = std::max(best_step_, message.step);
}

void Coordinator::on(std::size_t member, const TrainerExited& message, double now) {
  if (message.generation > placement_.generation) throw DataError("that generation does not exist yet");
  if (message.generation != placement_.generation || phase_ == Phase::finished) return;
  check_owner(member, message.rank);
  const bool was_killed = message.signal != 0;
  const int code = was_killed ? internal : static_cast<int>(std::min<std::uint64_t>(message.code, 255));
  if (!was_killed && (code == usage || code == data || message.is_final)) {  // even if the generation is already ending
    finish(code,
           fmt::format("{}: {}, which a restart cannot fix", describe_member(member, message.rank), describe(message)),
           now);
    return;
  }
  if (phase_ != Phase::running) return;
  RankState& rank = ranks_[message.rank];
  if (rank.ended) throw DataError("that rank has already ended");
  const bool is_any_leaving =
      rejoining_member_ ||
      std::any_of(slots_.begin(), slots_.end(), [](const MemberSlot& slot) { return !slot.leave_reason.empty(); });
  rank.left = !was_killed && code == temporary && is_any_leaving;
  is_done_ |= code == 0 && stall_detector_.last_report(message.rank);
  const bool is_missed = !is_done_ || !was_killed || message.is_wrapper;  // a script may have more to do
  if (code == 0 || rank.left || !is_missed) {
    rank.ended = true;
    stall_detector_.end(message.rank);
    if (rank.left) leave_by_ = std::min(leave_by_, now + timeouts_.leave_timeout);
    end_if_all_ended(now);
    return;
  }
  const bool is_known = code == internal || code == io || code == temporary;
  const bool is_leaving = !slots_[member].leave_reason.empty();
  const RestartCause ended_by = was_killed ? RestartCause::killed : RestartCause::exited;
  Fault fault{member,
              message.rank,
              describe(message),
              is_known ? code : internal,
              is_leaving,
              is_leaving ? RestartCause::left : ended_by};
  // A disk, or an earlier process that still owns the model directory, takes its time.
  fault.backs_off = code == io || (code == temporary && !stall_detector_.has_trained());
  const std::optional<Progress>& last = stall_detector_.last_report(message.rank);
  // An I/O error may pass: pauses, not a second failure.
  const bool is_at_start =
      last && last->activity == Activity::starting && message.signal != SIGKILL && code != temporary && code != io;
  const bool is_error_of_program = !was_killed && code == internal;  // which may be one of its code
  if (!message.out_of_memory.empty()) {
    fault.signature = "out of memory";
  } else if (is_leaving && (message.signal == SIGTERM || message.signal == SIGKILL)) {  // its launcher's
    fault.what = "left: " + slots_[member].leave_reason;
  } else if (is_at_start || is_error_of_program) {
    if (is_at_start) fault.what += " while it joined the MPI world; its last lines say why";
    fault.signature = message.error.empty() && is_at_start ? fault.what : message.error;
  }
  fail(fault, now);
}

void Coordinator::end_if_all_ended(double now) {
  if (!std::all_of(ranks_.begin(), ranks_.end(), [](const RankState& rank) { return rank.ended; })) return;
  if (std::none_of(ranks_.begin(), ranks_.end(), [](const RankState& rank) { return rank.left; })) {
    finish(0, "", now);
    return;
  }
  end_after_leave(now);
}

void Coordinator::on(std::size_t member, const Failed& message, double now) {
  if (!is_current(message.generation)) return;
  Fault fault{member, {}, message.reason, internal, false};
  fault.backs_off = true;
  fail(fault, now);
}

void Coordinator::on(std::size_t member, const Leaving& message, double /*now*/) {
  MemberSlot& slot = slots_[member];
  slot.leave_reason = message.reason.empty() ? "it was told to stop" : printable_line(message.reason);
  if (phase_ == Phase::finished) return;
  const char* const next = phase_ != Phase::running ? ""
                           : slots_.size() == 1
                               ? "; all ranks save what they have trained and end"
                               : "; all ranks save what they have trained and wait for it to come back";
  post_to_all(Notice{fmt::format("{} leaves: {}{}", describe_member(member, {}), slot.leave_reason, next)});
}

void Coordinator::on(std::size_t member, const TrainingDone& message, double now) {
  if (phase_ == Phase::finished) return;
  const bool is_believed = message.is_record ? has_finished_ && has_finished_() : are_members_proved_;
  if (!is_believed) {
    const char* const why = message.is_record ? "but the chief's model directory does not record it"
                                              : "which it cannot prove without a job token";
    post_to_all(Notice{
        fmt::format("{} reports that training was complete, {}; it takes part in the job", slots_[member].name, why)});
    on(member, Ready{}, now);
    return;
  }
  post_to_all(Notice{slots_[member].name + (message.is_record
                                                ? " reports that the job has finished, as is recorded"
                                                : " reports that training was complete when the chief was lost")});
  finish(0, "", now);
}

void Coordinator::on(std::size_t member, const Goodbye& /*message*/, double /*now*/) {
  if (phase_ != Phase::finished) throw DataError("the job is not over");
  slots_[member].has_acknowledged = true;
}

void Coordinator::check_stall(double now) {
  if (now > leave_by_) {
    leave_by_ = never;
    end_after_leave(now);
    if (phase_ != Phase::running) return;
  }
  check_start(now);
  if (phase_ != Phase::running) return;
  if (timeouts_.stall_timeout > 0 && stall_detector_.seconds_all_wait(now) > timeouts_.stall_timeout) check_links(now);
  const std::optional<Stall> stall = stall_detector_.find_stall(now);
  if (!stall) return;
  print_stacks();
  fail({placement_.ranks[stall->rank].member, stall->rank, stall->what, temporary, false, RestartCause::stalled}, now);
}

std::vector<std::size_t> Coordinator::find_latecomers() const {
  std::vector<std::size_t> starting = stall_detector_.starting_ranks();
  if (starting.empty()) return starting;
  const auto keep_if = [&starting](const auto& is_late) {
    if (std::ranges::any_of(starting, is_late))
      std::erase_if(starting, [&](std::size_t rank) { return !is_late(rank); });
  };
  keep_if([this](std::size_t rank) { return !stall_detector_.last_report(rank); });
  // Fences are numbered alike on all hosts: those with fewer have not come to the one at which the others wait.
  const auto fences_of = [this](std::size_t rank) { return next_fence_.at(placement_.ranks[rank].node); };
  const std::uint64_t fewest = fences_of(*std::ranges::min_element(starting, {}, fences_of));
  keep_if([&](std::size_t rank) { return fences_of(rank) == fewest; });
  return starting;
}

void Coordinator::check_start(double now) {
  const double seconds = stall_detector_.seconds_since_start(now);
  if (!has_printed_stacks_ && seconds >= timeouts_.stacks_after &&
      (!stall_detector_.starting_ranks().empty() || stall_detector_.is_start_awaited())) {
    post_to_all(Notice{fmt::format("training has not begun after {}, so the ranks print where they are in the code",
                                   format_seconds(seconds))});
    print_stacks();
  }
  const std::vector<std::size_t> late = find_latecomers();
  if (late.empty()) {
    check_first_steps(now);
    return;
  }
  std::string names;
  for (std::size_t i = 0; i < std::min(late.size(), max_latecomers); ++i) {
    const std::uint64_t member = placement_.ranks[late[i]].member;
    names += fmt::format("{}{}{}", i == 0 ? "" : ", ", describe_member(member, late[i]),
                         stall_detector_.last_report(late[i]) ? "" : ", whose trainer has not reported yet");
  }
  if (late.size() > max_latecomers) names += fmt::format(" and {} more", late.size() - max_latecomers);
  if (timeouts_.start_timeout > 0 && seconds > timeouts_.start_timeout) {
    const std::string what = fmt::format("MPI did not start within {} (--start-timeout); the ranks waited for {}",
                                         format_seconds(timeouts_.start_timeout), names);
    print_stacks();
    fail({placement_.ranks[late.front()].member, late.front(), what, temporary, false, RestartCause::stalled}, now);
  } else if (seconds >= next_start_report_) {
    next_start_report_ = seconds + timeouts_.report_interval;
    post_to_all(
        Notice{fmt::format("MPI has not started after {}: still waiting for {}", format_seconds(seconds), names)});
    check_links(now);
  }
}

/// Proves the links of the running world once more. MPI waits on a link that is cut, and until it is known how long
/// steps take, nothing else tells that apart from a rank that loads or compiles.
void Coordinator::check_links(double now) {
  if (now < next_link_check_) return;
  next_link_check_ = now + timeouts_.report_interval;
  std::vector<PeerInfo> members;
  std::vector<std::size_t> to;
  for (std::size_t member = 0; member < slots_.size(); ++member) {
    if (!slots_[member].is_in_world) continue;
    members.push_back(slots_[member].peer);
    to.push_back(member);
  }
  link_probes_.reset();
  if (std::optional<ProbePeers> request = link_probes_.next_round(members, now))
    actions_.emplace_back(Send{std::move(to), *std::move(request)});
}

/// The MPI world stands, but no step has begun. A rank may load or compile for longer than the others, so each restart
/// without progress doubles the time, up to --busy-timeout.
void Coordinator::check_first_steps(double now) {
  if (timeouts_.start_timeout <= 0) return;
  const double limit = std::ldexp(timeouts_.start_timeout, restarts_);
  const std::optional<Stall> silent = stall_detector_.find_silent_start(limit, now);
  if (!silent) return;
  print_stacks();
  fail({placement_.ranks[silent->rank].member, silent->rank,
        fmt::format("training did not begin within {} (--start-timeout{}): {}", format_seconds(limit),
                    restarts_ == 0 ? "" : ", doubled with each restart", silent->what),
        temporary, false, RestartCause::stalled},
       now);
}

void Coordinator::print_stacks() {
  if (!std::exchange(has_printed_stacks_, true)) post_to_all(PrintStacks{placement_.generation});
}

void Coordinator::add_to(JobStatus& status, double now) const {
  status.generation = placement_.generation;
  status.is_chief = true;
  status.restarts = restarts_by_cause_;
  if (phase_ == Phase::gathering) {
    status.phase = JobPhase::waiting;
    status.waiting_for = describe_wait(now);
  } else if (phase_ == Phase::finished) {
    status.phase = JobPhase::ending;
    if (exit_code_ != 0) status.problem = exit_reason_;
  }
  for (std::size_t member = 1; member < slots_.size(); ++member) {  // member 0 is this launcher
    const MemberSlot& slot = slots_[member];
    status.peers.push_back({slot.name, slot.is_connected, now - slot.last_heard});
  }
}

}  // namespace lockstep
