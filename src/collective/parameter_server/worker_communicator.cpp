// See worker_communicator.hpp.
#include "collective/parameter_server/worker_communicator.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {

WorkerCommunicator::WorkerCommunicator(TaskGroup& group)
    : TaskCommunicator(group),
      model_(group.add_model(
          {.receive = [this](std::size_t task, const ModelMessage& message) { receive(task, message); },
           .place = [this](std::size_t task, const ModelMessage& message) { return place(task, message); }})) {}

ArenaMemory WorkerCommunicator::allocate(std::size_t gradient_elements, std::size_t mirrored_bytes,
                                         std::vector<Range> buckets) {
  shards_of_bucket_.resize(buckets.size());
  for (std::size_t s = 0; s < layout_.shards.size(); ++s) shards_of_bucket_.at(layout_.shards[s].bucket).push_back(s);
  is_awaited_.resize(layout_.shards.size());
  return TaskCommunicator::allocate(gradient_elements, mirrored_bytes, std::move(buckets));
}

void WorkerCommunicator::begin_step(const StepNumbers& numbers) {
  iteration_ = numbers.iteration;
  if (!is_state_sent_ && rank() == 0) send_state();
  is_state_sent_ = true;
  std::vector<std::span<const std::byte>> parts;
  if (numbers.learning_rate) parts.push_back(std::as_bytes(std::span(&*numbers.learning_rate, 1)));
  const SharedBytes bytes = encode_shared(to_frame(ModelMessageKind::step, model_, iteration_, 0, parts));
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
  if (!is_state_sent_ || layout_.arrays.size() < 2) return;  // then these arenas are what the servers will hold
  missing_slots_ = layout_.shards.size();
  for (std::size_t server = 0; server < group_.servers(); ++server)
    group_.send_to_server(server, to_frame(ModelMessageKind::fetch, model_, iteration_, 0, {}));
  group_.wait([this] { return missing_slots_ == 0; },
              [this] { return fmt::format("{} shards of the servers' optimizer state", missing_slots_); });
}

void WorkerCommunicator::mark_ready(std::size_t bucket) {
  for (const std::size_t s : shards_of_bucket_.at(bucket)) {
    const ServerShard& shard = layout_.shards[s];
    send_parts(group_.workers() + shard.server, ModelMessageKind::gradient, model_, iteration_, s,
               {std::as_bytes(gradients().subspan(shard.range.begin, shard.range.size()))});
    is_awaited_[s] = true;
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
  if (message.kind != ModelMessageKind::weights) return {};
  const ServerShard& shard = shard_of(task, message);
  if (!is_awaited_[message.shard] || maps(task)) return {};
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
  const ServerShard& shard = shard_of(task, message);
  if (message.kind == ModelMessageKind::weights) {
    if (!is_awaited_[message.shard])
      throw DataError(fmt::format("it sent weights of step {}, which nobody expects", message.iteration));
    if (!message.is_placed) copy_to(place(task, message), message.data());
    if (maps(task)) {
      for (const std::span<std::byte> part : weights_of(shard)) std::ranges::copy(mapped(task, part), part.begin());
    }
    is_awaited_[message.shard] = false;
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

}  // namespace lockstep
