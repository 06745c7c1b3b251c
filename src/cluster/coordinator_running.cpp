// See coordinator.hpp: what members tell while a generation runs.
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cluster/coordinator.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

constexpr int usage = static_cast<int>(ExitCode::usage);
constexpr int data = static_cast<int>(ExitCode::data);
constexpr int internal = static_cast<int>(ExitCode::internal);
constexpr int io = static_cast<int>(ExitCode::io);
constexpr int temporary = static_cast<int>(ExitCode::temporary);

std::string describe(const ChildEnded& end) {
  if (end.signal == 0) return "its trainer ended with exit code " + std::to_string(end.code);
  const char* name = end.signal < NSIG ? sigdescr_np(static_cast<int>(end.signal)) : nullptr;
  return "its trainer was killed by signal " + std::to_string(end.signal) +
         (name == nullptr ? "" : " (" + std::string(name) + ")");
}

}  // namespace

void Coordinator::receive(std::size_t member, const Message& message, double now) {
  Seat& seat = seats_.at(member);
  if (!seat.present) return;  // on its way when its connection was given up
  seat.heard = now;
  try {
    std::visit([&](const auto& it) { on(member, it, now); }, message);
  } catch (const DataError& error) {
    actions_.emplace_back(HangUp{member});
    lose(member, std::string("it sent ") + name_of(message) + ", which makes no sense: " + error.what(), now);
  }
}

template <typename Other>
void Coordinator::on(std::size_t /*member*/, const Other& /*message*/, double /*now*/) {
  throw DataError("no member says that");
}

void Coordinator::on(std::size_t /*member*/, const Heartbeat& /*message*/, double /*now*/) {}

void Coordinator::on(std::size_t member, const Ready& /*message*/, double now) {
  Seat& seat = seats_[member];
  if (phase_ == Phase::running && seat.in_world) throw DataError("it should be training");
  seat.in_world = false;
  seat.ready = true;
  begin_if_complete(now);
  if (phase_ != Phase::running || seat.in_world || limits_.min_workers == 0) return;
  post_to_all(Notice{seat.name + " is back; it is taken in at the next backup"});
  if (!lets_in_) post(map_.ranks.front().member, LetIn{map_.generation});
  lets_in_ = member;
}

bool Coordinator::is_current(std::uint64_t generation) const {
  if (generation > map_.generation) throw DataError("there is no generation " + std::to_string(generation) + " yet");
  return phase_ == Phase::running && generation == map_.generation;
}

void Coordinator::check_owner(std::size_t member, std::uint64_t rank) const {
  if (rank >= map_.ranks.size() || map_.ranks[rank].member != member) {
    throw DataError("rank " + std::to_string(rank) + " is not its own");
  }
}

void Coordinator::on(std::size_t member, const RankEnvironment& message, double /*now*/) {
  if (!is_current(message.generation)) return;
  if (message.rank >= map_.ranks.size() || map_.server_of(message.rank) != member) {
    throw DataError("it does not serve rank " + std::to_string(message.rank));
  }
  post(map_.ranks[message.rank].member, message);
}

void Coordinator::on(std::size_t member, const Fence& message, double /*now*/) {
  if (!is_current(message.generation)) return;
  const std::optional<std::size_t> node = map_.node_served_by(member);
  if (!node) throw DataError("it serves no node");
  if (message.sequence != next_fence_[*node]) throw DataError("its fences are out of order");
  ++next_fence_[*node];
  auto& parts = fences_[message.sequence];
  parts.resize(map_.nodes.size());
  parts[*node] = message.blob;
  if (!std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part.has_value(); })) return;

  FenceDone done{message.generation, message.sequence, {}};
  for (std::optional<std::string>& part : parts) done.blobs.push_back(std::move(*part));
  fences_.erase(message.sequence);
  std::vector<std::size_t> servers;
  for (const Node& each : map_.nodes) servers.push_back(each.server);
  actions_.emplace_back(Post{std::move(servers), std::move(done)});
}

void Coordinator::on(std::size_t member, const Started& message, double /*now*/) {
  if (is_current(message.generation)) check_owner(member, message.rank);
}

void Coordinator::on(std::size_t member, const Progress& message, double now) {
  if (!is_current(message.generation)) return;
  check_owner(member, message.rank);
  watch_.hear(message, now);
  best_step_ = std::max(best_step_, message.step);
}

void Coordinator::on(std::size_t member, const ChildEnded& message, double now) {
  if (message.generation > map_.generation) throw DataError("there is no such generation yet");
  if (message.generation != map_.generation || phase_ == Phase::finished) return;
  check_owner(member, message.rank);
  const bool was_killed = message.signal != 0;
  const int code = was_killed ? internal : static_cast<int>(std::min<std::uint64_t>(message.code, 255));
  if (!was_killed && (code == usage || code == data)) {  // also where it only comes out while a generation ends
    finish(code, name_of_place(member, message.rank) + ": " + describe(message) + ", which no restart mends", now);
    return;
  }
  if (phase_ != Phase::running) return;
  RankState& rank = ranks_[message.rank];
  if (rank.ended) throw DataError("that rank has ended before");
  const bool somebody_leaves =
      lets_in_ || std::any_of(seats_.begin(), seats_.end(), [](const Seat& seat) { return !seat.leaving.empty(); });
  rank.left = !was_killed && code == temporary && somebody_leaves;
  is_done_ |= code == 0 && watch_.last(message.rank);
  if (code == 0 || rank.left || (is_done_ && was_killed)) {
    rank.ended = true;
    watch_.end(message.rank);
    if (rank.left) leave_by_ = std::min(leave_by_, now + limits_.leave);
    end_if_all_ended(now);
    return;
  }
  const bool is_known = code == internal || code == io || code == temporary;
  fail({member, message.rank, describe(message), is_known ? code : internal, !seats_[member].leaving.empty()}, now);
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
  if (is_current(message.generation)) fail({member, {}, message.reason, internal, false}, now);
}

void Coordinator::on(std::size_t member, const Leaving& message, double /*now*/) {
  Seat& seat = seats_[member];
  seat.leaving = message.reason.empty() ? "it was told to go" : printable(message.reason);
  if (phase_ == Phase::finished) return;
  post_to_all(Notice{name_of_place(member, {}) + " leaves: " + seat.leaving +
                     (phase_ == Phase::running ? "; all save, and wait for it to come back" : "")});
}

void Coordinator::on(std::size_t member, const Done& /*message*/, double now) {
  if (phase_ == Phase::finished) return;
  post_to_all(Notice{seats_[member].name + " knows that the training was done when the chief was lost"});
  finish(0, "", now);
}

void Coordinator::on(std::size_t member, const Farewell& /*message*/, double /*now*/) {
  if (phase_ != Phase::finished) throw DataError("there is no verdict yet");
  seats_[member].took_leave = true;
}

void Coordinator::watch_steps(double now) {
  if (now > leave_by_) {
    leave_by_ = never;
    end_after_leave(now);
    if (phase_ != Phase::running) return;
  }
  const std::optional<Stall> stall = watch_.find(now);
  if (stall) fail({map_.ranks[stall->rank].member, stall->rank, stall->what, temporary, false}, now);
}

void Coordinator::add_to(JobStatus& status, double now) const {
  status.generation = map_.generation;
  if (phase_ == Phase::gathering) {
    status.phase = JobPhase::waiting;
    status.waiting_for = describe_missing();
  } else if (phase_ == Phase::finished) {
    status.phase = JobPhase::ending;
    if (verdict_ != 0) status.problem = verdict_reason_;
  }
  for (std::size_t member = 1; member < seats_.size(); ++member) {  // this launcher's own part is the first
    const Seat& seat = seats_[member];
    status.peers.push_back({seat.name, seat.present, now - seat.heard});
  }
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!watch_.last(rank)) continue;
    status.ranks.push_back({seats_[map_.ranks[rank].member].name, *watch_.last(rank)});
  }
}

}  // namespace lockstep
