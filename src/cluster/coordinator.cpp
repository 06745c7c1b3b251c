// See coordinator.hpp: who is there, and how generations begin and end. What happens while one runs is in
// coordinator_running.cpp.
#include "cluster/coordinator.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cluster/seconds_text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

constexpr std::size_t most_names = 8;  // of those missing, in one line

}  // namespace

Coordinator::Coordinator(const std::vector<std::string>& tasks, std::string run, const Supervision& limits, double now)
    : limits_(limits), run_(std::move(run)), next_heartbeat_(now + limits.heartbeat), last_tick_(now), watch_(limits) {
  if (tasks.empty()) throw InternalError("a coordinator without members");
  seats_.resize(tasks.size());
  for (std::size_t member = 0; member < tasks.size(); ++member) seats_[member].name = tasks[member];
  gather(now, now + limits_.rejoin_timeout);
}

std::string Coordinator::admit(const Introduction& who, double now) {
  const std::size_t member = who.member;
  Seat& seat = seats_.at(member);
  if (seat.present) {
    const bool is_same_process = seat.who.incarnation == who.incarnation;  // it knows best that its connection is gone
    const bool is_silent = now - seat.heard > 2 * limits_.heartbeat;
    if (!is_same_process && !is_silent) {
      return seat.name + " is already here, from host " + printable(seat.who.host_name) +
             (seat.who.address.empty() ? "" : " (" + printable(seat.who.address) + ")") +
             "; give every process a task of its own in TF_CONFIG";
    }
    lose(member, is_same_process ? "its connection broke" : "another process has taken its place", now);
  }
  forget_actions_for(member);
  seat.who = who;
  seat.present = true;
  seat.ready = false;
  seat.in_world = false;
  seat.took_leave = false;
  seat.leaving.clear();
  seat.heard = now;
  if (phase_ == Phase::finished) {
    post(member, Verdict{static_cast<std::uint64_t>(verdict_.value_or(0)), verdict_reason_});
  }
  return "";
}

/// What was meant for a process must not reach its successor.
void Coordinator::forget_actions_for(std::size_t member) {
  std::erase_if(actions_, [&](CoordinatorAction& action) {
    if (const auto* hang_up = std::get_if<HangUp>(&action)) return hang_up->member == member;
    if (auto* post = std::get_if<Post>(&action)) std::erase(post->to, member);
    return false;
  });
}

void Coordinator::lose(std::size_t member, const std::string& why, double now) {
  Seat& seat = seats_.at(member);
  if (!seat.present) return;
  seat.present = false;
  seat.missing = seat.leaving.empty() ? "lost: " + why : "left: " + seat.leaving;
  const bool was_in_world = std::exchange(seat.in_world, false);
  if (phase_ == Phase::gathering) {
    if (seat.leaving.empty()) post_to_all(Notice{name_of_place(member, {}) + " is " + seat.missing});
  } else if (phase_ == Phase::running && was_in_world) {
    // Once its ranks have all done their work nobody misses it.
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      RankState& state = ranks_[rank];
      if (map_.ranks[rank].member != member || (state.ended && !state.left)) continue;
      if (is_done_) {
        state.ended = true;
        watch_.end(rank);
        continue;
      }
      const bool left = !seat.leaving.empty();
      fail({member, {}, left ? "left: " + seat.leaving : "lost: " + why, 75, left}, now);
      return;
    }
    end_if_all_ended(now);
  }
}

void Coordinator::explain(std::size_t member, const std::string& why) {
  Seat& seat = seats_.at(member);
  if (!seat.present) seat.missing = why;
}

std::vector<std::size_t> Coordinator::missing() const {
  std::vector<std::size_t> members;
  if (phase_ != Phase::gathering) return members;
  for (std::size_t member = 0; member < seats_.size(); ++member) {
    if (!seats_[member].present) members.push_back(member);
  }
  return members;
}

std::vector<CoordinatorAction> Coordinator::take_actions() { return std::exchange(actions_, {}); }

void Coordinator::tick(double now) {
  // A launcher that was stopped for a while was silent itself: it does not hold that against the others.
  const double gap = now - last_tick_;
  if (gap > limits_.silence / 2) {
    for (Seat& seat : seats_) seat.heard += gap;
    watch_.forgive(gap);
  }
  last_tick_ = now;

  if (now >= next_heartbeat_) {
    next_heartbeat_ = now + limits_.heartbeat;
    post_to_all(Heartbeat{});
  }
  watch_members(now);
  if (phase_ == Phase::gathering) {
    begin_if_complete(now);
  }
  if (phase_ == Phase::gathering) {
    report_missing(now);
  } else if (phase_ == Phase::running) {
    watch_steps(now);
  } else if (!all_heard_) {
    const bool all = std::all_of(seats_.begin(), seats_.end(), [](const Seat& seat) { return seat.took_leave; });
    const bool is_success = verdict_ == static_cast<int>(ExitCode::success);
    all_heard_ = all || now - phase_began_ > (is_success ? limits_.farewell : limits_.farewell_of_failure);
    if (all_heard_) actions_.emplace_back(AllHeard{});
  }
}

void Coordinator::watch_members(double now) {
  for (std::size_t member = 0; member < seats_.size(); ++member) {
    if (!seats_[member].present || now - seats_[member].heard <= limits_.silence) continue;
    actions_.emplace_back(HangUp{member});
    lose(member, "no sign of life for " + seconds_text(limits_.silence), now);
  }
}

void Coordinator::gather(double now, double go_on_at) {
  phase_ = Phase::gathering;
  phase_began_ = now;
  go_on_at_ = go_on_at;
  next_report_ = now + limits_.report;
  fences_.clear();
  ranks_.clear();
  leave_by_ = never;
  is_done_ = false;
  lets_in_.reset();
}

std::size_t Coordinator::needed(double now) const noexcept {
  return limits_.min_workers > 0 && now >= go_on_at_ ? static_cast<std::size_t>(limits_.min_workers) : seats_.size();
}

void Coordinator::begin_if_complete(double now) {
  if (phase_ != Phase::gathering) return;
  std::vector<Introduction> members;
  for (const Seat& seat : seats_) {
    if (!seat.present) continue;
    if (!seat.ready || !seat.leaving.empty()) return;
    members.push_back(seat.who);
  }
  if (members.size() < needed(now)) return;
  if (members.size() < seats_.size()) {
    post_to_all(Notice{std::to_string(members.size()) + " of " + std::to_string(seats_.size()) +
                       " workers go on without " + describe_missing()});
  }
  const std::uint64_t generation = map_.generation + 1;
  map_ = map_world(generation, "lockstep-" + run_ + "-" + std::to_string(generation), members);
  for (const Seat& seat : seats_) {
    if (seat.present) continue;
    const bool was_seen = seat.who.incarnation != 0;
    map_.replicas += was_seen ? seat.who.ranks : seats_.front().who.ranks;
  }
  ranks_.assign(map_.ranks.size(), {});
  next_fence_.assign(map_.nodes.size(), 0);
  phase_ = Phase::running;
  phase_began_ = now;
  watch_.begin(map_.ranks.size());
  for (Seat& seat : seats_) {
    seat.ready = false;
    seat.in_world = seat.present;
  }
  post_to_all(Begin{map_});
}

void Coordinator::report_missing(double now) {
  if (now - phase_began_ > limits_.rendezvous_timeout) {
    finish(75,
           "not all workers came within " + seconds_text(limits_.rendezvous_timeout) + " (" + describe_missing() +
               "); see that their pods run, or give them longer with --rendezvous-timeout",
           now);
  } else if (now >= next_report_) {
    next_report_ = now + limits_.report;
    post_to_all(Notice{"waiting since " + seconds_text(now - phase_began_) + " for " + describe_missing()});
  }
}

std::string Coordinator::describe_missing() const {
  std::string text;
  std::size_t named = 0;
  std::size_t unnamed = 0;
  for (const Seat& seat : seats_) {
    if (seat.present && seat.ready && seat.leaving.empty()) continue;
    if (named == most_names) {
      ++unnamed;
      continue;
    }
    ++named;
    const std::string why = !seat.present          ? seat.missing
                            : seat.leaving.empty() ? "it still ends its trainers"
                                                   : "it leaves: " + seat.leaving;
    text += (text.empty() ? "" : ", ") + seat.name + " (" + why + ")";
  }
  if (unnamed > 0) text += " and " + std::to_string(unnamed) + " more";
  return text;
}

void Coordinator::fail(const Fault& fault, double now) {
  if (best_step_ > best_step_before_) restarts_ = 0;
  best_step_before_ = best_step_;
  std::string text = "generation " + std::to_string(map_.generation) +
                     " has ended: " + name_of_place(fault.member, fault.rank) + ": " + printable(fault.what);
  if (fault.is_leave) {
    text += "; the others wait for it to come back";
  } else if (++restarts_ > limits_.max_restarts) {
    finish(fault.code,
           text + "; " +
               (limits_.max_restarts == 0 ? "--max-restarts is 0"
                                          : "that is enough after " + std::to_string(limits_.max_restarts) +
                                                " restarts without progress (--max-restarts)"),
           now);
    return;
  } else {
    text += "; restart " + std::to_string(restarts_) + " of at most " + std::to_string(limits_.max_restarts) +
            " without progress";
  }
  end_generation(fault.member, text);
  gather(now, now + limits_.rejoin_timeout);
}

void Coordinator::end_after_leave(double now) {
  for (std::size_t member = 0; member < seats_.size(); ++member) {
    if (seats_[member].leaving.empty()) continue;
    fail({member, {}, "left: " + seats_[member].leaving, static_cast<int>(ExitCode::temporary), true}, now);
    return;
  }
  if (!lets_in_) return;
  end_generation(*lets_in_, "generation " + std::to_string(map_.generation) + " has ended: " + seats_[*lets_in_].name +
                                " is back, and is taken in");
  gather(now, now);
}

void Coordinator::end_generation(std::size_t member, const std::string& reason) {
  post_to_all(GenerationEnds{map_.generation, member, reason});
}

void Coordinator::finish(int code, const std::string& reason, double now) {
  phase_ = Phase::finished;
  phase_began_ = now;
  verdict_ = code;
  verdict_reason_ = reason;
  fences_.clear();
  for (std::size_t member = 0; member < seats_.size(); ++member) {  // who was not missed is not waited for
    if (!seats_[member].present && map_.ranks_of_member(member).empty()) seats_[member].took_leave = true;
  }
  post_to_all(Verdict{static_cast<std::uint64_t>(code), reason});
}

std::string Coordinator::name_of_place(std::size_t member, std::optional<std::uint64_t> rank) const {
  const std::string& name = seats_.at(member).name;
  if (rank) return name + " (rank " + std::to_string(*rank) + ")";
  const std::vector<std::uint64_t> ranks = map_.ranks_of_member(member);
  if (ranks.empty()) return name;
  if (ranks.size() == 1) return name + " (rank " + std::to_string(ranks.front()) + ")";
  return name + " (ranks " + std::to_string(ranks.front()) + " to " + std::to_string(ranks.back()) + ")";
}

void Coordinator::post(std::size_t member, Message message) {
  actions_.emplace_back(Post{{member}, std::move(message)});
}

void Coordinator::post_to_all(Message message) {
  std::vector<std::size_t> present;
  for (std::size_t member = 0; member < seats_.size(); ++member) {
    if (seats_[member].present) present.push_back(member);
  }
  if (!present.empty()) actions_.emplace_back(Post{std::move(present), std::move(message)});
}

}  // namespace lockstep
