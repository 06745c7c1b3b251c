// See member.hpp.
#include "cluster/member.hpp"

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

constexpr int temporary = static_cast<int>(ExitCode::temporary);

bool is_fatal(int code) {
  return code == static_cast<int>(ExitCode::usage) || code == static_cast<int>(ExitCode::data);
}

}  // namespace

Member::Member(std::uint64_t number, std::string chief, const Supervision& limits, double now)
    : number_(number),
      chief_(std::move(chief)),
      limits_(limits),
      alone_since_(now),
      next_report_(now + limits.report),
      last_tick_(now) {}

void Member::connected(double now) {
  if (state_ == State::gone) return;
  is_connected_ = true;
  hang_up_ = false;
  messages_.clear();
  heard_ = now;
  next_heartbeat_ = now;
  if (is_leaving_) {
    send(Leaving{"it was told to go"});
  } else if (state_ == State::idle) {
    send(is_done_ ? Message(Done{}) : Message(Ready{}));
  }
}

void Member::disconnected(const std::string& why, double now) {
  if (!std::exchange(is_connected_, false)) return;
  messages_.clear();
  alone_since_ = now;
  next_report_ = now + limits_.report;
  why_alone_ = why;
  if (state_ == State::gone || exit_) return;
  log("lost the chief, " + chief_ + ": " + why +
          (is_done_                   ? "; the training is done"
           : state_ == State::running ? "; generation " + std::to_string(map_.generation) + " has ended here"
                                      : "") +
          "; waiting for it to come back",
      true);
  if (state_ == State::running) end_generation();
}

void Member::unreachable(const std::string& why) {
  if (!is_connected_) why_alone_ = why;
}

void Member::refused(int code, const std::string& reason) {
  exit_ = Exit{code, "the chief, " + chief_ + ", refuses this process: " + printable(reason)};
  if (state_ == State::running) end_generation();
  if (state_ == State::idle) exit(exit_->code, exit_->message);
}

void Member::tick(double now) {
  const double gap = now - last_tick_;
  if (gap > limits_.silence / 2) heard_ += gap;  // it was this process that was stopped
  last_tick_ = now;
  if (state_ == State::gone) return;
  if (is_connected_) {
    if (now >= next_heartbeat_) {
      next_heartbeat_ = now + limits_.heartbeat;
      send(Heartbeat{});
    }
    if (now - heard_ > limits_.silence) {
      hang_up_ = true;
      disconnected("no sign of life for " + seconds_text(limits_.silence), now);
    }
    return;
  }
  if (exit_) return;
  if (now - alone_since_ > limits_.rendezvous_timeout) {
    exit_ = Exit{temporary, "the chief, " + chief_ + ", did not come within " +
                                seconds_text(limits_.rendezvous_timeout) + " (" + why_alone_ +
                                "); see that its pod runs, or give it longer with --rendezvous-timeout"};
    if (state_ == State::idle) exit(exit_->code, exit_->message);
  } else if (now >= next_report_) {
    next_report_ = now + limits_.report;
    log("waiting since " + seconds_text(now - alone_since_) + " for the chief, " + chief_ + ": " + why_alone_);
  }
}

void Member::receive(const Message& message, double now) {
  if (!is_connected_) return;
  heard_ = now;
  if (state_ == State::gone) return;
  try {
    std::visit([&](const auto& it) { on(it); }, message);
  } catch (const DataError& error) {
    hang_up_ = true;
    disconnected(std::string("it sent ") + name_of(message) + ", which makes no sense: " + error.what(), now);
  }
}

template <typename Other>
void Member::on(const Other& /*message*/) {
  throw DataError("no coordinator says that");
}

void Member::on(const Heartbeat& /*message*/) {}

void Member::on(const Notice& message) { log(message.text); }

void Member::on(const Begin& message) {
  if (state_ != State::idle) throw DataError("something still runs here");
  const WorldMap& map = message.map;
  for (const RankPlace& place : map.ranks) {
    if (place.node >= map.nodes.size()) throw DataError("a rank is on a node that does not exist");
  }
  if (map.ranks_of_member(number_).empty()) throw DataError("there is no rank for this launcher");
  if (exit_ || is_leaving_) return;  // the coordinator will hear of it
  if (map.generation > 1)
    log("generation " + std::to_string(map.generation) + " begins, " + std::to_string(map.ranks.size()) + " ranks");
  map_ = map;
  state_ = State::running;
  next_fence_ = 0;
  open_fences_.clear();
  started_ranks_.clear();
  is_done_ = false;
  if (const std::optional<std::size_t> node = map_.node_served_by(number_)) actions_.emplace_back(StartServer{*node});
}

void Member::on(const RankEnvironment& message) {
  if (state_ != State::running || message.generation != map_.generation) return;
  if (message.rank >= map_.ranks.size() || map_.ranks[message.rank].member != number_) {
    throw DataError("that rank is another launcher's");
  }
  start_trainer(message.rank, message.variables);
}

void Member::on(const FenceDone& message) {
  if (state_ != State::running || message.generation != map_.generation) return;
  if (message.blobs.size() != map_.nodes.size()) throw DataError("it does not have a part for each node");
  if (open_fences_.erase(message.sequence) == 0) throw DataError("nobody waits for that fence");
  actions_.emplace_back(AnswerFence{message.sequence, false, message.blobs});
}

void Member::on(const GenerationEnds& message) {
  if (message.generation != map_.generation || state_ == State::idle) return;
  log(message.reason, true);
  is_done_ = false;
  if (state_ == State::running) end_generation();
}

void Member::on(const LetIn& message) {
  if (state_ == State::running && message.generation == map_.generation) actions_.emplace_back(LeaveWithBackup{});
}

void Member::on(const Verdict& message) {
  has_verdict_ = true;
  exit_ = Exit{static_cast<int>(message.code & 0xFFU), message.reason.empty() ? "" : printable(message.reason)};
  if (state_ == State::running) end_generation();
  if (state_ == State::idle) exit(exit_->code, exit_->message);
}

void Member::environment(std::uint64_t rank, Environment variables) {
  if (state_ != State::running) return;
  if (map_.ranks.at(rank).member == number_) {
    start_trainer(rank, std::move(variables));
  } else {
    send(RankEnvironment{map_.generation, rank, std::move(variables)});
  }
}

void Member::start_trainer(std::uint64_t rank, Environment variables) {
  if (!started_ranks_.insert(rank).second) throw DataError("that rank has its environment");
  actions_.emplace_back(StartTrainer{rank, std::move(variables)});
}

std::uint64_t Member::fence(std::string blob) {
  const std::uint64_t sequence = next_fence_++;
  if (state_ == State::running) {
    open_fences_.insert(sequence);
    send(Fence{map_.generation, sequence, std::move(blob)});
  } else {
    actions_.emplace_back(AnswerFence{sequence, true, {}});
  }
  return sequence;
}

void Member::started(std::uint64_t rank) {
  if (state_ == State::running) send(Started{map_.generation, rank});
}

void Member::progress(Progress report) {
  report.generation = map_.generation;
  if (state_ == State::running) send(report);
}

void Member::child_ended(std::uint64_t rank, int code, int signal, bool is_ours) {
  if (state_ == State::gone) return;
  if (is_ours && code == 0 && signal == 0) is_done_ = true;
  if (is_connected_) {
    // Also while a generation ends: what no restart mends must be known.
    send(ChildEnded{map_.generation, rank, static_cast<std::uint64_t>(code), static_cast<std::uint64_t>(signal)});
  } else if (signal == 0 && is_fatal(code) && !exit_) {
    exit_ = Exit{code, "rank " + std::to_string(rank) + " ended with exit code " + std::to_string(code) +
                           ", which no restart mends"};
  }
}

void Member::failed(const std::string& reason) {
  if (state_ == State::running) send(Failed{map_.generation, reason});
}

void Member::all_ended() {
  if (state_ != State::ending) return;
  state_ = State::idle;
  if (exit_) {
    exit(exit_->code, exit_->message);
  } else if (is_leaving_) {
    exit(temporary, "");
  } else if (is_connected_) {
    send(is_done_ ? Message(Done{}) : Message(Ready{}));
  }
}

void Member::leave(const std::string& reason) {
  if (is_leaving_ || state_ == State::gone) return;
  is_leaving_ = true;
  send(Leaving{reason});
  if (state_ == State::running) actions_.emplace_back(SaveAndLeave{});
  if (state_ == State::idle) exit(temporary, "");
}

void Member::end_generation() {
  state_ = State::ending;
  for (const std::uint64_t sequence : open_fences_) actions_.emplace_back(AnswerFence{sequence, true, {}});
  open_fences_.clear();
  actions_.emplace_back(EndGeneration{});
}

void Member::exit(int code, const std::string& message) {
  state_ = State::gone;
  if (has_verdict_) send(Farewell{});
  actions_.emplace_back(Exit{code, message});
}

void Member::send(Message message) {
  if (is_connected_) messages_.push_back(std::move(message));
}

void Member::log(const std::string& text, bool is_warning) { actions_.emplace_back(Log{printable(text), is_warning}); }

void Member::add_to(JobStatus& status, double now) const {
  status.generation = map_.generation;
  status.peers.push_back({chief_, is_connected_, now - heard_});
  switch (state_) {
    case State::idle: status.phase = JobPhase::waiting; break;
    case State::running: status.phase = JobPhase::training; break;
    case State::ending:
    case State::gone: status.phase = JobPhase::ending; break;
  }
  status.waiting_for = is_connected_ ? "other workers" : "the chief, " + chief_ + ": " + why_alone_;
  if (is_leaving_) status.problem = "leaving: it was told to go";
  if (exit_ && exit_->code != 0) status.problem = exit_->message;
}

std::vector<Message> Member::take_messages() { return std::exchange(messages_, {}); }

bool Member::take_hang_up() { return std::exchange(hang_up_, false); }

std::vector<LauncherAction> Member::take_actions() { return std::exchange(actions_, {}); }

}  // namespace lockstep
