// See server_communicator.hpp.
#include "collective/parameter_server/server_communicator.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {

ServerCommunicator::ServerCommunicator(TaskGroup& group, const UpdatePolicy& policy)
    : TaskCommunicator(group),
      policy_(policy),
      model_(group.add_model(
          {.receive = [this](std::size_t task, const ModelMessage& message) { receive(task, message); },
           .place = [this](std::size_t task, const ModelMessage& message) { return place(task, message); },
           .forget = [this](std::size_t task) { forget(task); }})),
      senders_(group.workers()),
      counted_(group.workers()),
      inherits_(group.workers()) {
  if (group.own_server() == 0 && !policy.waits_for_all(group.workers())) tickets_.emplace(policy, group.workers());
}

void ServerCommunicator::use_servers(const ServerLayout& layout) {
  TaskCommunicator::use_servers(layout);
  for (std::size_t s = 0; s < layout_.shards.size(); ++s) {
    if (layout_.shards[s].server == group_.own_server()) own_.push_back({s});
  }
  for (Sender& sender : senders_) sender.has_sent.resize(own_.size());
}

std::vector<Range> ServerCommunicator::own_ranges() const {
  std::vector<Range> ranges;
  for (const OwnShard& own : own_) ranges.push_back(layout_.shards[own.index].range);
  return ranges;
}

ArenaMemory ServerCommunicator::allocate(std::size_t gradient_elements, std::size_t mirrored_bytes,
                                         std::vector<Range> buckets) {
  const ArenaMemory memory = TaskCommunicator::allocate(gradient_elements, mirrored_bytes, std::move(buckets));
  for (std::size_t worker = 0; worker < senders_.size(); ++worker) {
    Sender& sender = senders_[worker];
    if (!maps(worker)) sender.received = AlignedBuffer(gradient_elements * sizeof(float));
    sender.gradients = maps(worker)
                           ? reinterpret_cast<const float*>(mapped(worker, std::as_bytes(memory.gradients)).data())
                           : sender.received.as<float>().data();
  }
  return memory;
}

bool ServerCommunicator::Sender::is_complete() const {
  return !begun.empty() && std::ranges::find(has_sent, false) == has_sent.end();
}

bool ServerCommunicator::has_step() const { return !find_contributors().empty(); }

std::vector<std::size_t> ServerCommunicator::find_contributors() const {
  std::vector<std::size_t> found;
  const bool waits_for_all = policy_.waits_for_all(senders_.size());
  for (std::size_t worker = 0; worker < senders_.size(); ++worker) {
    const Sender& sender = senders_[worker];
    // With all workers, the update of a shard begins before the gradients of the others have come.
    const bool is_ready = waits_for_all ? !sender.begun.empty() : sender.is_complete();
    const bool is_of_step = waits_for_all || policy_.is_asynchronous || !is_ready ||
                            sender.begun.front().numbers.iteration == step_.iteration + 1;
    if (is_ready && is_of_step) found.push_back(worker);
  }
  if (found.size() < policy_.gradients) return {};
  if (!waits_for_all) std::ranges::sort(found, {}, [this](std::size_t each) { return senders_[each].completed_at; });
  found.resize(policy_.gradients);
  std::ranges::sort(found);
  return found;
}

StepNumbers ServerCommunicator::take_step() {
  contributors_ = find_contributors();
  const StepNumbers first = senders_.at(contributors_.front()).begun.front().numbers;
  sources_.clear();
  for (const std::size_t worker : contributors_) {
    const StepNumbers& its = senders_[worker].begun.front().numbers;
    senders_[worker].last_ticket = senders_[worker].begun.front().ticket;
    if (its != first) {
      throw UsageError(
          fmt::format("the workers disagree about a step: {} makes step {} with the learning rate {}, {} makes step {} "
                      "with {}; use the same callbacks on all workers",
                      group_.name_of(contributors_.front()), first.iteration, first.learning_rate.value_or(0),
                      group_.name_of(worker), its.iteration, its.learning_rate.value_or(0)));
    }
    sources_.push_back(senders_[worker].gradients);
    if (own_.empty()) senders_[worker].begun.pop_front();  // there will be no gradient to answer
  }
  const std::uint64_t made = std::exchange(step_, first).iteration;
  if (policy_.is_asynchronous) step_.iteration = made + 1;  // the worker does not know how many updates others cause
  is_in_step_ = true;
  return step_;
}

void ServerCommunicator::end_step() {
  is_in_step_ = false;
  for (const std::size_t worker : std::exchange(lost_, {})) clear(worker);
  drop_made();
  answer_pulls();
  if (!tickets_) return;
  tickets_->end_step();
  hand_out_tickets();
}

const std::size_t* ServerCommunicator::missing_contributor(std::size_t shard) const {
  const auto missing =
      std::ranges::find_if(contributors_, [&](std::size_t worker) { return !senders_[worker].has_sent.at(shard); });
  return missing == contributors_.end() ? nullptr : &*missing;
}

ReducedShard ServerCommunicator::wait_reduced(std::size_t shard) {
  const ServerShard& its = layout_.shards[own_.at(shard).index];
  group_.wait([&] { return is_reduced(shard); },
              [&] {
                return fmt::format("{} to send its gradient of bucket {}", group_.name_of(*missing_contributor(shard)),
                                   its.bucket);
              });
  return {its.range.begin, its.range.end, sources_};
}

void ServerCommunicator::mark_updated(std::size_t shard) {
  own_.at(shard).version = step_.iteration;
  for (const std::size_t worker : contributors_) answer(worker, ModelMessageKind::weights, shard);
  for (std::size_t worker = 0; worker < senders_.size(); ++worker) {
    if (senders_[worker].has_sent[shard] && is_late(worker, step_.iteration))
      answer(worker, ModelMessageKind::late_weights, shard);
  }
}

bool ServerCommunicator::is_late(std::size_t worker, std::uint64_t version) const {
  return !policy_.is_asynchronous && !policy_.waits_for_all(senders_.size()) &&
         senders_[worker].begun.front().numbers.iteration <= version;
}

void ServerCommunicator::send_weights(std::size_t worker, ModelMessageKind kind, std::size_t shard) {
  const OwnShard& own = own_[shard];
  const ServerShard& its = layout_.shards[own.index];
  std::vector<std::span<const std::byte>> parts{std::as_bytes(values_of(0, its)), copies_of(its)};
  if (maps(worker)) {  // it reads them there
    for (const std::span<const std::byte> part : parts) {
      if (!part.empty() && !shares_mirror()) std::ranges::copy(part, mapped(worker, part).begin());
    }
    parts.clear();
  }
  if (policy_.waits_for_all(senders_.size()))
    return send_parts(worker, kind, model_, own.version, own.index, std::move(parts));
  group_.send(worker, encode_shared(to_frame(kind, model_, own.version, own.index, parts)));
}

void ServerCommunicator::answer(std::size_t worker, ModelMessageKind kind, std::size_t shard) {
  send_weights(worker, kind, shard);
  Sender& sender = senders_[worker];
  if (sender.begun.empty()) return;  // it was lost just now
  sender.has_sent[shard] = false;
  if (++sender.answered < own_.size()) return;
  sender.answered = 0;
  sender.begun.pop_front();
}

std::size_t ServerCommunicator::own_shard_of(const ModelMessage& message) const {
  const auto own = std::ranges::find(own_, message.shard, &OwnShard::index);
  if (own == own_.end())
    throw DataError(fmt::format("it sent shard {}, which this server does not hold", message.shard));
  return static_cast<std::size_t>(own - own_.begin());
}

Places ServerCommunicator::place(std::size_t task, const ModelMessage& message) {
  if (task >= group_.workers() || message.kind != ModelMessageKind::gradient) return {};
  const std::size_t shard = own_shard_of(message);
  Sender& sender = senders_[task];
  if (sender.begun.empty() || sender.has_sent[shard] || maps(task)) return {};
  const Range& range = layout_.shards[own_[shard].index].range;
  return {std::as_writable_bytes(sender.received.as<float>().subspan(range.begin, range.size()))};
}

void ServerCommunicator::receive(std::size_t task, const ModelMessage& message) {
  if (task >= group_.workers()) throw DataError("it sent a message that only workers send");
  switch (message.kind) {
    case ModelMessageKind::step: {
      StepNumbers numbers{message.iteration, {}};
      if (!message.data().empty()) {
        double& learning_rate = numbers.learning_rate.emplace(0);
        copy_to(std::array{std::as_writable_bytes(std::span(&learning_rate, 1))}, message.data());
      }
      senders_.at(task).begun.push_back({numbers, message.shard});
      return;
    }
    case ModelMessageKind::gradient: return receive_gradient(task, message);
    case ModelMessageKind::state: return receive_state(task, message);
    case ModelMessageKind::fetch: return send_slots(task);
    case ModelMessageKind::pull: pulls_.push_back({task, message.iteration}); return answer_pulls();
    case ModelMessageKind::open_round:
    case ModelMessageKind::close_round:
    case ModelMessageKind::want_ticket: return receive_of_round(task, message);
    default: throw DataError("it sent a message that only servers send");
  }
}

void ServerCommunicator::receive_gradient(std::size_t worker, const ModelMessage& message) {
  const std::size_t shard = own_shard_of(message);
  Sender& sender = senders_[worker];
  if (sender.begun.empty()) throw DataError("it sent a gradient of no step");
  if (sender.has_sent[shard]) throw DataError("it sent a gradient twice");
  if (is_late(worker, own_[shard].version)) return answer(worker, ModelMessageKind::late_weights, shard);
  if (!message.is_placed) copy_to(place(worker, message), message.data());
  sender.has_sent[shard] = true;
  if (!sender.is_complete()) return;
  sender.completed_at = ++completed_;
  if (!is_in_step_) drop_made();
}

void ServerCommunicator::receive_state(std::size_t worker, const ModelMessage& message) {
  if (worker != 0) throw DataError("it sent weights, which only the first worker does");
  OwnShard& own = own_[own_shard_of(message)];
  const ServerShard& shard = layout_.shards[own.index];
  std::vector<std::span<std::byte>> places;
  for (std::size_t array = 0; array < layout_.arrays.size(); ++array)
    places.push_back(std::as_writable_bytes(values_of(array, shard)));
  copy_to(places, message.data());
  own.version = step_.iteration = message.iteration;
}

void ServerCommunicator::receive_of_round(std::size_t worker, const ModelMessage& message) {
  if (!tickets_) throw DataError("it asks for a ticket, which only server 0 has, and not in this job");
  if (message.kind == ModelMessageKind::open_round) {
    std::array<std::uint64_t, 2> steps{};
    copy_to(std::array<std::span<std::byte>, 1>{std::as_writable_bytes(std::span(steps))}, message.data());
    tickets_->open({steps[0], steps[1]});
    counted_.assign(group_.workers(), {});
  } else if (message.kind == ModelMessageKind::close_round) {
    tickets_->close();
  } else {
    // A successor, which has counted nothing yet, gets what its predecessor had.
    const std::span<const std::byte> counted = message.data();
    if (!counted.empty()) counted_.at(worker).assign(reinterpret_cast<const char*>(counted.data()), counted.size());
    inherits_.at(worker) = message.data().empty();
    tickets_->ask(worker);
  }
  hand_out_tickets();
}

void ServerCommunicator::hand_out_tickets() {
  while (const auto grant = tickets_->next_grant()) {
    const ModelMessageKind kind = grant->is_end ? ModelMessageKind::round_end : ModelMessageKind::ticket;
    std::vector<std::span<const std::byte>> parts;
    if (inherits_[grant->worker]) parts.push_back(std::as_bytes(std::span(counted_[grant->worker])));
    group_.send(grant->worker, encode_shared(to_frame(kind, model_, grant->slice, grant->step, parts)));
  }
}

void ServerCommunicator::forget(std::size_t worker) {
  std::erase_if(pulls_, [worker](const Pull& pull) { return pull.worker == worker; });
  if (senders_[worker].last_ticket > 0) made_tickets_.insert(senders_[worker].last_ticket);
  if (is_in_step_) {
    lost_.insert(worker);  // the step may use its gradient
  } else {
    clear(worker);
  }
  if (!tickets_) return;
  tickets_->forget(worker);
  hand_out_tickets();
}

bool ServerCommunicator::is_made(std::uint64_t ticket) const {
  return ticket > 0 && (made_tickets_.contains(ticket) ||
                        std::ranges::find(senders_, ticket, &Sender::last_ticket) != senders_.end());
}

void ServerCommunicator::drop_made() {
  for (std::size_t worker = 0; worker < senders_.size(); ++worker) {
    const Sender& sender = senders_[worker];
    if (!sender.is_complete() || !is_made(sender.begun.front().ticket)) continue;
    for (std::size_t shard = 0; shard < own_.size(); ++shard) answer(worker, ModelMessageKind::late_weights, shard);
  }
}

void ServerCommunicator::clear(std::size_t worker) {
  Sender& sender = senders_[worker];
  sender.begun.clear();
  sender.has_sent.assign(own_.size(), false);
  sender.answered = 0;
  if (!maps(worker)) return;
  unmap(worker);
  sender.received = AlignedBuffer(gradients().size_bytes());
  sender.gradients = sender.received.as<float>().data();
}

/// Within a step some shards are updated and others are not.
void ServerCommunicator::answer_pulls() {
  if (is_in_step_) return;
  for (const Pull& pull : std::exchange(pulls_, {})) {
    if (pull.iteration > step_.iteration) {
      pulls_.push_back(pull);
      continue;
    }
    for (std::size_t shard = 0; shard < own_.size(); ++shard)
      send_weights(pull.worker, ModelMessageKind::weights, shard);
  }
}

void ServerCommunicator::send_slots(std::size_t worker) {
  for (const OwnShard& own : own_) {
    const ServerShard& shard = layout_.shards[own.index];
    std::vector<std::span<const std::byte>> parts;
    for (std::size_t array = 1; array < layout_.arrays.size(); ++array)
      parts.push_back(std::as_bytes(values_of(array, shard)));
    group_.send(worker, encode_shared(to_frame(ModelMessageKind::slots, model_, step_.iteration, own.index, parts)));
  }
}

}  // namespace lockstep
