// See coordinator.hpp. This file holds membership and the begin and end of generations; coordinator_running.cpp handles
// messages while a generation runs.
#include "cluster/rendezvous/coordinator.hpp"

#include "cluster/net/format_seconds.hpp"
#include "cluster/net/socket.hpp"
#include "core/printable.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

constexpr std::size_t max_names = 8;  // missing members named in one line
constexpr double max_pause_s = 30;    // between two generations
constexpr const char* admit_connections =
    "let firewalls and network policies admit connections between the job's hosts";

}  // namespace

Coordinator::Coordinator(const std::vector<std::string>& tasks, std::string run_id, const SupervisionTimeouts& timeouts,
                         double now, bool are_members_proved)
    : timeouts_(timeouts),
      run_id_(std::move(run_id)),
      are_members_proved_(are_members_proved),
      link_probes_(tasks),
      next_heartbeat_(now + timeouts.heartbeat_interval),
      last_tick_(now),
      stall_detector_(timeouts) {
  if (tasks.empty()) throw InternalError("the coordinator has no members");
  slots_.resize(tasks.size());
  for (std::size_t member = 0; member < tasks.size(); ++member) slots_[member].name = tasks[member];
  start_gathering(now, now + timeouts_.rejoin_timeout);
}

std::string Coordinator::join(const PeerInfo& who, double now) {
  const std::size_t member = who.member;
  MemberSlot& slot = slots_.at(member);
  if (slot.is_connected) {
    const bool is_same_process =
        slot.peer.incarnation == who.incarnation;  // it reconnected, so its old connection is gone
    const bool is_silent = now - slot.last_heard > 2 * timeouts_.heartbeat_interval;
    if (!is_same_process && !is_silent) {
      return fmt::format("{} is already connected from host {}{}; give every process its own task in TF_CONFIG",
                         slot.name, printable_line(slot.peer.host_name),
                         slot.peer.address.empty() ? "" : fmt::format(" ({})", printable_line(slot.peer.address)));
    }
    member_lost(member, is_same_process ? "its connection broke" : "another process has replaced it", now);
  }
  forget_actions_for(member);
  link_probes_.reset();
  slot.peer = who;
  slot.is_connected = true;
  slot.is_ready = false;
  slot.is_in_world = false;
  slot.has_acknowledged = false;
  slot.leave_reason.clear();
  slot.last_heard = now;
  if (phase_ == Phase::finished) {
    post(member, JobResult{static_cast<std::uint64_t>(exit_code_.value_or(0)), exit_reason_});
  }
  return "";
}

/// Drops pending actions for a member, because messages for a process must not reach its successor.
void Coordinator::forget_actions_for(std::size_t member) {
  std::erase_if(actions_, [&](CoordinatorAction& action) {
    if (const auto* disconnect = std::get_if<Disconnect>(&action)) return disconnect->member == member;
    if (auto* send = std::get_if<Send>(&action)) std::erase(send->to, member);
    return false;
  });
}

void Coordinator::member_lost(std::size_t member, const std::string& why, double now) {
  MemberSlot& slot = slots_.at(member);
  if (!slot.is_connected) return;
  slot.is_connected = false;
  link_probes_.reset();
  slot.absence_reason = slot.leave_reason.empty() ? "lost: " + why : "left: " + slot.leave_reason;
  const bool was_in_world = std::exchange(slot.is_in_world, false);
  if (phase_ == Phase::gathering) {
    if (slot.leave_reason.empty()) post_to_all(Notice{describe_member(member, {}) + " is " + slot.absence_reason});
  } else if (phase_ == Phase::running && was_in_world) {
    // The job does not need a member whose ranks have all finished.
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      RankState& state = ranks_[rank];
      if (placement_.ranks[rank].member != member || (state.ended && !state.left)) continue;
      if (is_done_) {
        state.ended = true;
        stall_detector_.end(rank);
        continue;
      }
      const bool left = !slot.leave_reason.empty();
      fail({member,
            {},
            left ? "left: " + slot.leave_reason : "lost: " + why,
            75,
            left,
            left ? RestartCause::left : RestartCause::lost},
           now);
      return;
    }
    end_if_all_ended(now);
  }
}

void Coordinator::set_absence_reason(std::size_t member, const std::string& why) {
  MemberSlot& slot = slots_.at(member);
  if (!slot.is_connected) slot.absence_reason = why;
}

void Coordinator::set_addresses(std::size_t member, std::vector<std::string> addresses) {
  slots_.at(member).peer.addresses = std::move(addresses);
}

std::vector<std::size_t> Coordinator::missing_members() const {
  std::vector<std::size_t> members;
  if (phase_ != Phase::gathering) return members;
  for (std::size_t member = 0; member < slots_.size(); ++member) {
    if (!slots_[member].is_connected) members.push_back(member);
  }
  return members;
}

std::vector<CoordinatorAction> Coordinator::take_actions() { return std::exchange(actions_, {}); }

void Coordinator::tick(double now) {
  // A process that was suspended received no heartbeats and no reports: the gap does not count as silence of the
  // others.
  const double gap = now - last_tick_;
  if (gap > timeouts_.heartbeat_timeout / 2) {
    for (MemberSlot& slot : slots_) slot.last_heard += gap;
  }
  const double limit = timeouts_.stall_timeout > 0 ? timeouts_.stall_timeout : timeouts_.heartbeat_timeout;
  if (gap > std::min(limit, timeouts_.heartbeat_timeout) / 2) stall_detector_.discount(gap);
  last_tick_ = now;

  if (now >= next_heartbeat_) {
    next_heartbeat_ = now + timeouts_.heartbeat_interval;
    post_to_all(Heartbeat{});
  }
  check_heartbeats(now);
  if (phase_ == Phase::gathering) {
    begin_if_complete(now);
  }
  if (phase_ == Phase::gathering) {
    report_missing(now);
  } else if (phase_ == Phase::running) {
    check_stall(now);
  } else if (!all_acknowledged_) {
    const bool has_everyone_acknowledged =
        std::all_of(slots_.begin(), slots_.end(), [](const MemberSlot& slot) { return slot.has_acknowledged; });
    const bool is_success = exit_code_ == static_cast<int>(ExitCode::success);
    all_acknowledged_ =
        has_everyone_acknowledged ||
        now - phase_began_ > (is_success ? timeouts_.goodbye_timeout : timeouts_.goodbye_timeout_after_failure);
    if (all_acknowledged_) actions_.emplace_back(AllAcknowledged{});
  }
}

void Coordinator::check_heartbeats(double now) {
  for (std::size_t member = 0; member < slots_.size(); ++member) {
    if (!slots_[member].is_connected || now - slots_[member].last_heard <= timeouts_.heartbeat_timeout) continue;
    actions_.emplace_back(Disconnect{member});
    member_lost(member, "no heartbeat for " + format_seconds(timeouts_.heartbeat_timeout), now);
  }
}

void Coordinator::start_gathering(double now, double proceed_at) {
  phase_ = Phase::gathering;
  phase_began_ = now;
  proceed_at_ = proceed_at;
  next_report_ = now + timeouts_.report_interval;
  link_probes_.reset();
  fences_.clear();
  ranks_.clear();
  leave_by_ = never;
  is_done_ = false;
  rejoining_member_.reset();
}

std::size_t Coordinator::num_members_needed(double now) const noexcept {
  return timeouts_.min_workers > 0 && now >= proceed_at_ ? static_cast<std::size_t>(timeouts_.min_workers)
                                                         : slots_.size();
}

void Coordinator::begin_if_complete(double now) {
  if (phase_ != Phase::gathering || now < retry_at_) return;
  std::vector<PeerInfo> members;
  for (const MemberSlot& slot : slots_) {
    if (!slot.is_connected) continue;
    if (!slot.is_ready || !slot.leave_reason.empty()) return;
    members.push_back(slot.peer);
  }
  if (members.size() < num_members_needed(now)) return;
  if (std::optional<ProbePeers> request = link_probes_.next_round(members, now)) post_to_all(*std::move(request));
  if (!link_probes_.are_proved()) return;
  if (members.size() < slots_.size()) {
    post_to_all(
        Notice{fmt::format("{} of {} workers continue without {}", members.size(), slots_.size(), describe_missing())});
  }
  const std::uint64_t generation = placement_.generation + 1;
  placement_ = place_ranks(generation, fmt::format("lockstep-{}-{}", run_id_, generation), members);
  placement_.master_port = free_port();
  for (const MemberSlot& slot : slots_) {
    if (slot.is_connected) continue;
    const bool was_seen = slot.peer.incarnation != 0;
    placement_.full_world_size += was_seen ? slot.peer.ranks : slots_.front().peer.ranks;
  }
  ranks_.assign(placement_.ranks.size(), {});
  next_fence_.assign(placement_.nodes.size(), 0);
  phase_ = Phase::running;
  phase_began_ = now;
  next_start_report_ = timeouts_.report_interval;
  next_link_check_ = 0;
  has_printed_stacks_ = false;
  stall_detector_.begin(placement_.ranks.size());
  for (MemberSlot& slot : slots_) {
    slot.is_ready = false;
    slot.is_in_world = slot.is_connected;
  }
  post_to_all(GenerationBegins{placement_});
}

void Coordinator::report_missing(double now) {
  // A pause before a restart is nobody's absence.
  const bool is_late = now - std::max(phase_began_, retry_at_) > timeouts_.rendezvous_timeout;
  const std::string limit = format_seconds(timeouts_.rendezvous_timeout);
  if (const std::string& cut_links = link_probes_.problem(); is_late && !cut_links.empty()) {
    finish(75,
           fmt::format("no world can form within {}: {}; {}, or raise --rendezvous-timeout", limit, cut_links,
                       admit_connections),
           now);
  } else if (is_late) {
    finish(75,
           fmt::format("not all workers connected within {} ({}); check that their pods run, or raise "
                       "--rendezvous-timeout",
                       limit, describe_wait(now)),
           now);
  } else if (now >= next_report_) {
    next_report_ = now + timeouts_.report_interval;
    post_to_all(
        Notice{fmt::format("still waiting after {} for {}", format_seconds(now - phase_began_), describe_wait(now))});
  }
}

std::string Coordinator::describe_wait(double now) const {
  if (!link_probes_.problem().empty()) return "the network: " + link_probes_.problem();
  if (std::string missing = describe_missing(); !missing.empty()) return missing;
  return now < retry_at_ ? "the end of the pause before a restart" : "the links between the workers";
}

void Coordinator::on(std::size_t member, const PeersProbed& message, double now) {
  const bool is_news = link_probes_.receive(member, message, now);
  const std::string& cut_links = link_probes_.problem();
  if (phase_ == Phase::running) {
    const int temporary = static_cast<int>(ExitCode::temporary);
    if (is_news && !cut_links.empty())
      fail({link_probes_.first_without_link(), {}, cut_links, temporary, false, RestartCause::lost}, now);
    return;
  }
  if (is_news && !cut_links.empty())
    post_to_all(Notice{fmt::format("{}; {}; trying again", cut_links, admit_connections)});
  if (link_probes_.are_proved()) begin_if_complete(now);
}

std::string Coordinator::describe_missing() const {
  std::string text;
  std::size_t named = 0;
  std::size_t unnamed = 0;
  for (const MemberSlot& slot : slots_) {
    if (slot.is_connected && slot.is_ready && slot.leave_reason.empty()) continue;
    if (named == max_names) {
      ++unnamed;
      continue;
    }
    ++named;
    const std::string why = !slot.is_connected          ? slot.absence_reason
                            : slot.leave_reason.empty() ? "still ending its trainers"
                                                        : "leaving: " + slot.leave_reason;
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", slot.name, why);
  }
  if (unnamed > 0) text += fmt::format(" and {} more", unnamed);
  return text;
}

void Coordinator::fail(const Fault& fault, double now) {
  const bool has_progressed = best_step_ > best_step_before_;
  if (has_progressed) restarts_ = 0;
  best_step_before_ = best_step_;
  retry_at_ = 0;
  const std::string before = std::exchange(last_signature_, fault.signature);
  const bool is_repeated = !has_progressed && !before.empty() && before == fault.signature;
  std::string text = fmt::format("generation {} ended: {}: {}", placement_.generation,
                                 describe_member(fault.member, fault.rank), printable_line(fault.what));
  if (fault.is_leave) {
    if (slots_.size() > 1) text += "; waiting for it to come back";  // else the worker's own line says how to go on
  } else if (is_repeated) {
    finish(fault.code, text + "; it is the second time in a row without progress, so the job is not started again",
           now);
    return;
  } else if (++restarts_ > timeouts_.max_restarts) {
    finish(fault.code,
           text + (timeouts_.max_restarts == 0
                       ? "; --max-restarts is 0"
                       : fmt::format("; giving up after {} restarts without progress (--max-restarts)",
                                     timeouts_.max_restarts)),
           now);
    return;
  } else {
    text += fmt::format("; restart {} of at most {} without progress", restarts_, timeouts_.max_restarts);
    if (fault.backs_off) {
      const double pause = std::min(std::ldexp(1.0, restarts_ - 1), max_pause_s);
      text += " after a pause of " + format_seconds(pause);
      retry_at_ = now + pause;
    }
  }
  ++restarts_by_cause_[fault.cause];
  end_generation(fault.member, text);
  start_gathering(now, now + timeouts_.rejoin_timeout);
}

void Coordinator::end_after_leave(double now) {
  for (std::size_t member = 0; member < slots_.size(); ++member) {
    if (slots_[member].leave_reason.empty()) continue;
    fail({member,
          {},
          "left: " + slots_[member].leave_reason,
          static_cast<int>(ExitCode::temporary),
          true,
          RestartCause::left},
         now);
    return;
  }
  if (!rejoining_member_) return;
  ++restarts_by_cause_[RestartCause::rejoined];
  end_generation(*rejoining_member_, fmt::format("generation {} ended: {} is back and joins the next generation",
                                                 placement_.generation, slots_[*rejoining_member_].name));
  start_gathering(now, now);
}

void Coordinator::end_generation(std::size_t member, const std::string& reason) {
  post_to_all(GenerationEnds{placement_.generation, member, reason});
}

void Coordinator::finish(int code, const std::string& reason, double now) {
  phase_ = Phase::finished;
  phase_began_ = now;
  exit_code_ = code;
  exit_reason_ = reason;
  fences_.clear();
  // Members outside the world are not waited for. If another coordinator formed the world, all may have been in it.
  const bool knows_world = !placement_.ranks.empty() || code != 0;
  for (std::size_t member = 0; member < slots_.size(); ++member) {
    if (knows_world && !slots_[member].is_connected && placement_.ranks_of_member(member).empty())
      slots_[member].has_acknowledged = true;
  }
  post_to_all(JobResult{static_cast<std::uint64_t>(code), reason});
}

void Coordinator::finish_at_once(double now) { finish(0, "", now); }

std::string Coordinator::describe_member(std::size_t member, std::optional<std::uint64_t> rank) const {
  const std::string& name = slots_.at(member).name;
  if (placement_.ranks.size() == 1) return name;
  if (rank) return fmt::format("{} (rank {})", name, *rank);
  const std::vector<std::uint64_t> ranks = placement_.ranks_of_member(member);
  if (ranks.empty()) return name;
  if (ranks.size() == 1) return fmt::format("{} (rank {})", name, ranks.front());
  return fmt::format("{} (ranks {} to {})", name, ranks.front(), ranks.back());
}

void Coordinator::post(std::size_t member, Message message) {
  actions_.emplace_back(Send{{member}, std::move(message)});
}

void Coordinator::post_to_all(Message message) {
  std::vector<std::size_t> present;
  for (std::size_t member = 0; member < slots_.size(); ++member) {
    if (slots_[member].is_connected) present.push_back(member);
  }
  if (!present.empty()) actions_.emplace_back(Send{std::move(present), std::move(message)});
}

}  // namespace lockstep
