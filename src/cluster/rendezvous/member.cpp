// See member.hpp.
#include "cluster/rendezvous/member.hpp"

#include "cluster/net/format_seconds.hpp"
#include "core/printable.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

constexpr int temporary = static_cast<int>(ExitCode::temporary);

bool is_fatal(int code) {
  return code == static_cast<int>(ExitCode::usage) || code == static_cast<int>(ExitCode::data);
}

}  // namespace

Member::Member(std::uint64_t index, std::string chief, const SupervisionTimeouts& timeouts, double now)
    : index_(index),
      chief_(std::move(chief)),
      timeouts_(timeouts),
      disconnected_since_(now),
      next_report_(now + timeouts.report_interval),
      last_tick_(now) {}

void Member::had_finished() noexcept {
  is_done_ = true;
  had_finished_ = true;
}

void Member::connected(double now) {
  if (state_ == State::exited) return;
  is_connected_ = true;
  disconnect_requested_ = false;
  messages_.clear();
  last_heard_ = now;
  next_heartbeat_ = now;
  if (is_leaving_) {
    send(Leaving{"it was told to stop"});
  } else if (state_ == State::idle) {
    send_state();
  }
}

void Member::disconnected(const std::string& why, double now) {
  if (!std::exchange(is_connected_, false)) return;
  messages_.clear();
  probe_request_.reset();
  probing_round_ = 0;  // another coordinator counts its own rounds
  disconnected_since_ = now;
  next_report_ = now + timeouts_.report_interval;
  disconnect_reason_ = why;
  if (state_ == State::exited || exit_) return;
  const std::string consequence = is_done_ ? "; training is complete"
                                  : state_ == State::running
                                      ? fmt::format("; generation {} ended here", placement_.generation)
                                      : "";
  log(fmt::format("lost the chief, {}: {}{}; waiting for it to come back", chief_, why, consequence), true);
  if (state_ == State::running) end_generation("lost the chief: " + why);
}

void Member::unreachable(const std::string& why) {
  if (!is_connected_) disconnect_reason_ = why;
}

void Member::refused(int code, const std::string& reason) {
  exit_ = Exit{code, fmt::format("the chief, {}, refuses this process: {}", chief_, printable_line(reason))};
  if (state_ == State::running) end_generation(reason);
  if (state_ == State::idle) exit(exit_->code, exit_->message);
}

void Member::tick(double now) {
  const double gap = now - last_tick_;
  if (gap > timeouts_.heartbeat_timeout / 2) last_heard_ += gap;  // this process was suspended, not the chief
  last_tick_ = now;
  if (state_ == State::exited) return;
  if (is_connected_) {
    if (now >= next_heartbeat_) {
      next_heartbeat_ = now + timeouts_.heartbeat_interval;
      send(Heartbeat{});
    }
    if (now - last_heard_ > timeouts_.heartbeat_timeout) {
      disconnect_requested_ = true;
      disconnected("no heartbeat for " + format_seconds(timeouts_.heartbeat_timeout), now);
    }
    return;
  }
  if (exit_) return;
  const double patience = had_finished_ ? timeouts_.goodbye_timeout_after_failure : timeouts_.rendezvous_timeout;
  if (now - disconnected_since_ > patience) {
    exit_ = is_done_
                ? Exit{0, fmt::format("training was complete; the chief, {}, did not come back to hear it", chief_)}
                : Exit{temporary,
                       fmt::format("the chief, {}, did not accept a connection within {} ({}); check that its pod "
                                   "runs, or raise --rendezvous-timeout",
                                   chief_, format_seconds(timeouts_.rendezvous_timeout), disconnect_reason_)};
    if (state_ == State::idle) exit(exit_->code, exit_->message);
  } else if (now >= next_report_) {
    next_report_ = now + timeouts_.report_interval;
    log(fmt::format("still waiting after {} for the chief, {}: {}", format_seconds(now - disconnected_since_), chief_,
                    disconnect_reason_));
  }
}

void Member::receive(const Message& message, double now) {
  if (!is_connected_) return;
  last_heard_ = now;
  if (state_ == State::exited) return;
  try {
    std::visit([&](const auto& it) { on(it); }, message);
  } catch (const DataError& error) {
    disconnect_requested_ = true;
    disconnected(fmt::format("it sent an invalid {}: {}", message_name(message), error.what()), now);
  }
}

template <typename Other>
void Member::on(const Other& /*message*/) {
  throw DataError("coordinators do not send it");
}

void Member::on(const Heartbeat& /*message*/) {}

void Member::on(const Notice& message) { log(message.text); }

void Member::on(const GenerationBegins& message) {
  if (state_ != State::idle) throw DataError("processes still run here");
  const Placement& placement = message.placement;
  for (const RankPlacement& rank : placement.ranks) {
    if (rank.node >= placement.nodes.size()) throw DataError("a rank is placed on a node that does not exist");
  }
  if (placement.master_port > std::numeric_limits<std::uint16_t>::max()) throw DataError("a port is above 65535");
  if (placement.ranks_of_member(index_).empty()) throw DataError("this launcher has no rank");
  if (exit_ || is_leaving_) return;  // another message informs the coordinator
  if (placement.generation > 1)
    log(fmt::format("generation {} begins, {} ranks", placement.generation, placement.ranks.size()));
  placement_ = placement;
  state_ = State::running;
  next_fence_ = 0;
  open_fences_.clear();
  started_ranks_.clear();
  is_done_ = false;
  had_finished_ = false;
  if (const std::optional<std::size_t> node = placement_.node_served_by(index_))
    actions_.emplace_back(StartPmixServer{*node});
}

void Member::on(const RankEnvironment& message) {
  if (state_ != State::running || message.generation != placement_.generation) return;
  if (message.rank >= placement_.ranks.size() || placement_.ranks[message.rank].member != index_) {
    throw DataError("that rank belongs to another launcher");
  }
  start_trainer(message.rank, message.variables);
}

void Member::on(const FenceDone& message) {
  if (state_ != State::running || message.generation != placement_.generation) return;
  if (message.blobs.size() != placement_.nodes.size()) throw DataError("it does not hold one blob per node");
  if (open_fences_.erase(message.sequence) == 0) throw DataError("no fence of that number is pending");
  actions_.emplace_back(AnswerFence{message.sequence, false, message.blobs});
}

void Member::on(const GenerationEnds& message) {
  if (message.generation != placement_.generation || state_ == State::idle) return;
  log(message.reason, true);
  is_done_ = false;
  if (state_ == State::running) end_generation(message.reason);
}

void Member::on(const Admit& message) {
  if (state_ == State::running && message.generation == placement_.generation)
    actions_.emplace_back(StopAfterNextBackup{});
}

void Member::on(const PrintStacks& message) {
  if (state_ == State::running && message.generation == placement_.generation)
    actions_.emplace_back(PrintTrainerStacks{});
}

void Member::on(const ProbePeers& message) {
  if (state_ == State::ending || state_ == State::exited) return;  // so the world of the probe is no more
  const auto self = std::ranges::find(message.targets, index_, &ProbeTarget::member);
  if (self == message.targets.end()) throw DataError("it does not list this launcher");
  probing_round_ = message.round;
  ProbePeers request{message.round, {}};
  for (const ProbeTarget& target : message.targets) {
    if (self->must_reach(target)) request.targets.push_back(target);
  }
  if (request.targets.empty()) {
    peers_probed({message.round, {}});
  } else {
    probe_request_ = std::move(request);
  }
}

void Member::on(const JobResult& message) {
  has_job_result_ = true;
  exit_ = Exit{static_cast<int>(message.code & 0xFFU), message.reason.empty() ? "" : printable_line(message.reason)};
  if (state_ == State::running) end_generation(message.reason);
  if (state_ == State::idle) exit(exit_->code, exit_->message);
}

void Member::environment(std::uint64_t rank, Environment variables) {
  if (state_ != State::running) return;
  if (placement_.ranks.at(rank).member == index_) {
    start_trainer(rank, std::move(variables));
  } else {
    send(RankEnvironment{placement_.generation, rank, std::move(variables)});
  }
}

void Member::start_trainer(std::uint64_t rank, Environment variables) {
  if (!started_ranks_.insert(rank).second) throw DataError("that rank already has its environment");
  actions_.emplace_back(StartTrainer{rank, std::move(variables)});
}

std::uint64_t Member::fence(std::string blob) {
  const std::uint64_t sequence = next_fence_++;
  if (state_ == State::running) {
    open_fences_.insert(sequence);
    send(Fence{placement_.generation, sequence, std::move(blob)});
  } else {
    actions_.emplace_back(AnswerFence{sequence, true, {}});
  }
  return sequence;
}

void Member::started(std::uint64_t rank) {
  if (state_ == State::running) send(TrainerStarted{placement_.generation, rank});
}

void Member::progress(Progress report) {
  report.generation = placement_.generation;
  if (state_ == State::running) send(report);
}

void Member::trainer_exited(TrainerExited end, bool has_reported) {
  if (state_ == State::exited) return;
  end.generation = placement_.generation;
  const int code = static_cast<int>(end.code);
  if (has_reported && code == 0 && end.signal == 0) is_done_ = true;
  if (is_connected_) {
    send(end);  // also while a generation ends, because the coordinator must learn of permanent errors
  } else if (end.signal == 0 && (is_fatal(code) || end.is_final) && !exit_) {
    exit_ = Exit{code, fmt::format("rank {} ended with exit code {}, which a restart cannot fix", end.rank, code)};
  }
}

void Member::failed(const std::string& reason) {
  if (state_ == State::running) send(Failed{placement_.generation, reason});
}

void Member::all_ended() {
  if (state_ != State::ending) return;
  state_ = State::idle;
  if (exit_) {
    exit(exit_->code, exit_->message);
  } else if (is_leaving_) {
    exit(is_done_ ? 0 : temporary, "");
  } else if (is_connected_) {
    send_state();
  }
}

void Member::peers_probed(PeersProbed result) {
  if (state_ == State::exited || result.round != probing_round_) return;
  probing_round_ = 0;
  send(std::move(result));
}

void Member::leave(const std::string& reason) {
  if (is_leaving_ || state_ == State::exited) return;
  is_leaving_ = true;
  send(Leaving{reason});
  if (state_ == State::running) actions_.emplace_back(StopAfterThisStep{});
  if (state_ == State::idle) exit(is_done_ ? 0 : temporary, "");
}

void Member::end_generation(const std::string& reason) {
  state_ = State::ending;
  for (const std::uint64_t sequence : open_fences_) actions_.emplace_back(AnswerFence{sequence, true, {}});
  open_fences_.clear();
  actions_.emplace_back(EndGeneration{reason});
}

void Member::exit(int code, const std::string& message) {
  state_ = State::exited;
  if (has_job_result_) send(Goodbye{});
  actions_.emplace_back(Exit{code, message});
}

void Member::send_state() { send(is_done_ ? Message(TrainingDone{had_finished_}) : Message(Ready{})); }

void Member::send(Message message) {
  if (is_connected_) messages_.push_back(std::move(message));
}

void Member::log(const std::string& text, bool is_warning) {
  actions_.emplace_back(Log{printable_line(text), is_warning});
}

void Member::add_to(JobStatus& status, double now) const {
  status.generation = placement_.generation;
  status.peers.push_back({chief_, is_connected_, now - last_heard_});
  switch (state_) {
    case State::idle: status.phase = JobPhase::waiting; break;
    case State::running: status.phase = JobPhase::training; break;
    case State::ending:
    case State::exited: status.phase = JobPhase::ending; break;
  }
  status.waiting_for = is_connected_ ? "other workers" : fmt::format("the chief, {}: {}", chief_, disconnect_reason_);
  if (is_leaving_) status.problem = "leaving: it was told to stop";
  if (exit_ && exit_->code != 0) status.problem = exit_->message;
}

std::vector<Message> Member::take_messages() { return std::exchange(messages_, {}); }

bool Member::take_disconnect_request() { return std::exchange(disconnect_requested_, false); }

std::optional<ProbePeers> Member::take_probe_request() { return std::exchange(probe_request_, {}); }

std::vector<LauncherAction> Member::take_actions() { return std::exchange(actions_, {}); }

}  // namespace lockstep
