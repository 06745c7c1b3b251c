// See worker_communicator.hpp.
#include "collective/parameter_server/worker_communicator.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {

WorkerCommunicator::WorkerCommunicator(TaskGroup& group, const UpdatePolicy& policy)
    : TaskCommunicator(group),
      policy_(policy),
      model_(group.add_model(
          {.receive = [this](std::size_t task, const ModelMessage& message) { receive(task, message); },
           .place = [this](std::size_t task, const ModelMessage& message) { return place(task, message); }})) {}

ArenaMemory WorkerCommunicator::allocate(std::size_t gradient_elements, std::size_t mirrored_bytes,
                                         std::vector<Range> buckets) {
  shards_of_bucket_.resize(buckets.size());
  for (std::size_t s = 0; s < layout_.shards.size(); ++s) shards_of_bucket_.at(layout_.shards[s].bucket).push_back(s);
  is_awaited_.resize(layout_.shards.size());
  versions_.resize(layout_.shards.size());
  return TaskCommunicator::allocate(gradient_elements, mirrored_bytes, std::move(buckets));
}

void WorkerCommunicator::begin_step(const StepNumbers& numbers) {
  iteration_ = numbers.iteration;
  if (!has_tickets()) {
    if (!is_state_sent_ && rank() == 0 && !shares_mirror()) send_state();
    is_state_sent_ = true;
  }
  std::vector<std::span<const std::byte>> parts;
  if (numbers.learning_rate) parts.push_back(std::as_bytes(std::span(&*numbers.learning_rate, 1)));
  const std::uint64_t ticket = policy_.is_asynchronous ? ticket_number_ : 0;
  const SharedBytes bytes = encode_shared(to_frame(ModelMessageKind::step, model_, iteration_, ticket, parts));
  for (std::size_t server = 0; server < group_.servers(); ++server) group_.send(group_.workers() + server, bytes);
}

void WorkerCommunicator::send_state() {
  for (std::size_t s = 0; s < layout_.shards.size(); ++s) {
    const ServerShard& shard = layout_.shards[s];
    std::vector<std::span<const std::byte>> parts;
    for (std::size_t array = 0; array < layout_.arrays.size(); ++array)
      parts.push_back(std::as_bytes(values_of(array, shard)));
    group_.send_to_server(shard.server, to_frame(ModelMessageKind::state, model_, iteration_, s, parts));
  }
}

void WorkerCommunicator::fetch_slots() {
  const bool holds_slots = !is_state_sent_ || shares_mirror();  // as the servers will, or do
  if (holds_slots || layout_.arrays.size() < 2) return;
  missing_slots_ = layout_.shards.size();
  send_to_all_servers(ModelMessageKind::fetch, iteration_);
  group_.wait([this] { return missing_slots_ == 0; },
              [this] { return fmt::format("{} shards of the servers' optimizer state", missing_slots_); });
}

void WorkerCommunicator::send_to_all_servers(ModelMessageKind kind, std::uint64_t iteration) {
  for (std::size_t server = 0; server < group_.servers(); ++server)
    group_.send_to_server(server, to_frame(kind, model_, iteration, 0, {}));
}

void WorkerCommunicator::begin_round(const Range& steps, std::uint64_t iteration, std::uint64_t number) {
  ++round_;
  iteration_ = first_iteration_ = iteration;
  first_number_ = number;
  round_begin_ = expected_step_ = steps.begin;
  is_round_over_ = false;
  is_in_round_ = true;
  std::ranges::fill(versions_, iteration);
  if (rank() == 0) {
    if (!is_state_sent_) {
      send_state();
      pull(iteration);  // the servers have the state before another worker's gradient comes
    }
    const std::array<std::uint64_t, 2> range{steps.begin, steps.end};
    const std::array parts{std::span<const std::byte>(std::as_bytes(std::span(range)))};
    group_.send_to_server(0, to_frame(ModelMessageKind::open_round, model_, iteration, 0, parts));
  }
  is_state_sent_ = true;
  barrier();  // until the chief has begun the round, and so has fetched what it saves after the last one
  if (group_.has_returned() && !group_.is_replaying()) pull(0);
}

std::optional<Ticket> WorkerCommunicator::next_ticket(std::span<const double> counted) {
  if (group_.is_replaying()) is_round_over_ = true;
  if (is_round_over_) return std::nullopt;
  if (policy_.is_asynchronous) wait_all_updated();  // TicketQueue takes the last update of a worker that asks as made
  awaits_ticket_ = true;
  const std::array parts{std::as_bytes(counted)};
  group_.send_to_server(0, to_frame(ModelMessageKind::want_ticket, model_, iteration_, 0, parts));
  group_.wait([this] { return !awaits_ticket_; },
              [this] { return fmt::format("{} to hand out a ticket", group_.name_of_server(0)); });
  if (is_round_over_) return std::nullopt;
  Ticket ticket = *ticket_;
  const std::uint64_t before = ticket.step - round_begin_;
  ticket.number = first_number_ + before;
  if (policy_.is_asynchronous) {
    if (policy_.max_staleness && trains()) pull(0);
    ticket.iteration = weights_iteration() + 1;
    constexpr unsigned tickets_of_a_round = 40;  // bits
    ticket_number_ = (round_ << tickets_of_a_round) + before * updates_per_step() + ticket.slice;
  } else {
    ticket.iteration = first_iteration_ + before + 1;
    if (ticket.step > expected_step_) pull(ticket.iteration - 1);  // the servers have gone on without this worker
    expected_step_ = ticket.step + 1;
  }
  return ticket;
}

void WorkerCommunicator::close_round() {
  group_.send_to_server(0, to_frame(ModelMessageKind::close_round, model_, iteration_, 0, {}));
}

std::uint64_t WorkerCommunicator::end_round() {
  wait_all_updated();
  barrier();
  pull(0);
  is_in_round_ = false;
  return ticket_ ? ticket_->step : 0;
}

void WorkerCommunicator::pull(std::uint64_t iteration) {
  wait_all_updated();
  is_awaited_.assign(is_awaited_.size(), true);
  send_to_all_servers(ModelMessageKind::pull, iteration);
  wait_all_updated();
}

void WorkerCommunicator::wait_all_updated() {
  for (std::size_t bucket = 0; bucket < shards_of_bucket_.size(); ++bucket) wait_updated(bucket);
}

GradientResult WorkerCommunicator::wait_result() {
  wait_updated(layout_.shards.front().bucket);
  return result_;
}

void WorkerCommunicator::mark_ready(std::size_t bucket) {
  for (const std::size_t s : shards_of_bucket_.at(bucket)) {
    const ServerShard& shard = layout_.shards[s];
    send_parts(group_.workers() + shard.server, ModelMessageKind::gradient, model_, iteration_, s,
               {std::as_bytes(gradients().subspan(shard.range.begin, shard.range.size()))});
    is_awaited_[s] = true;
    if (s == 0) awaits_result_ = true;
  }
  group_.make_progress();
}

void WorkerCommunicator::wait_updated(std::size_t bucket) {
  const std::vector<std::size_t>& shards = shards_of_bucket_.at(bucket);
  const auto is_missing = [this](std::size_t s) { return is_awaited_[s]; };
  group_.wait([&] { return std::ranges::none_of(shards, is_missing); },
              [&] {
                const std::size_t s = *std::ranges::find_if(shards, is_missing);
                return fmt::format("{} to send the weights of bucket {}",
                                   group_.name_of_server(layout_.shards[s].server), bucket);
              });
}

Places WorkerCommunicator::place(std::size_t task, const ModelMessage& message) const {
  if (message.kind != ModelMessageKind::weights && message.kind != ModelMessageKind::late_weights) return {};
  const ServerShard& shard = shard_of(task, message);
  if (!is_awaited_[message.shard] || is_mapped_by(task)) return {};
  return weights_of(shard);
}

Places WorkerCommunicator::weights_of(const ServerShard& shard) const {
  return {std::as_writable_bytes(values_of(0, shard)), copies_of(shard)};
}

const ServerShard& WorkerCommunicator::shard_of(std::size_t task, const ModelMessage& message) const {
  if (message.shard >= layout_.shards.size() || task != group_.workers() + layout_.shards[message.shard].server) {
    throw DataError(fmt::format("it sent shard {}, which it does not hold", message.shard));
  }
  return layout_.shards[message.shard];
}

void WorkerCommunicator::receive(std::size_t task, const ModelMessage& message) {
  if (message.kind == ModelMessageKind::ticket || message.kind == ModelMessageKind::round_end) {
    if (!std::exchange(awaits_ticket_, false)) throw DataError("it sent a ticket, which nobody expects");
    is_round_over_ = message.kind == ModelMessageKind::round_end;
    inherited_.resize(message.data().size() / sizeof(double));
    copy_to(std::array{std::as_writable_bytes(std::span(inherited_))}, message.data());
    ticket_ = Ticket{.step = message.shard, .slice = message.iteration};
    return;
  }
  const ServerShard& shard = shard_of(task, message);
  if (message.kind == ModelMessageKind::weights || message.kind == ModelMessageKind::late_weights) {
    receive_weights(task, message);
  } else if (message.kind == ModelMessageKind::slots && missing_slots_ > 0) {
    std::vector<std::span<std::byte>> places;
    for (std::size_t array = 1; array < layout_.arrays.size(); ++array)
      places.push_back(std::as_writable_bytes(values_of(array, shard)));
    copy_to(places, message.data());
    --missing_slots_;
  } else {
    throw DataError("it sent a message that only workers send");
  }
}

void WorkerCommunicator::receive_weights(std::size_t task, const ModelMessage& message) {
  if (!is_awaited_[message.shard])
    throw DataError(fmt::format("it sent weights of step {}, which nobody expects", message.iteration));
  if (!message.is_placed) copy_to(place(task, message), message.data());
  is_awaited_[message.shard] = false;
  const std::uint64_t before = std::exchange(versions_[message.shard], message.iteration);
  if (message.shard > 0 || !std::exchange(awaits_result_, false)) return;
  // An asynchronous gradient is dropped only if that of a lost worker was used, which nobody has counted.
  result_.is_dropped = message.kind == ModelMessageKind::late_weights && !policy_.is_asynchronous;
  result_.staleness = policy_.is_asynchronous && message.iteration > before ? message.iteration - before - 1 : 0;
}

}  // namespace lockstep
