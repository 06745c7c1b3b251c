// See server_communicator.hpp.
#include "collective/parameter_server/server_communicator.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace lockstep {

ServerCommunicator::ServerCommunicator(TaskGroup& group)
    : TaskCommunicator(group),
      model_(group.add_model(
          {.receive = [this](std::size_t task, const ModelMessage& message) { receive(task, message); },
           .place = [this](std::size_t task, const ModelMessage& message) { return place(task, message); }})),
      begun_(group.workers()) {}

void ServerCommunicator::use_servers(const ServerLayout& layout) {
  TaskCommunicator::use_servers(layout);
  for (std::size_t s = 0; s < layout_.shards.size(); ++s) {
    if (layout_.shards[s].server == group_.own_server())
      own_.push_back({s, group_.workers(), std::vector<bool>(group_.workers())});
  }
}

std::vector<Range> ServerCommunicator::own_ranges() const {
  std::vector<Range> ranges;
  for (const OwnShard& own : own_) ranges.push_back(layout_.shards[own.index].range);
  return ranges;
}

ArenaMemory ServerCommunicator::allocate(std::size_t gradient_elements, std::size_t mirrored_bytes,
                                         std::vector<Range> buckets) {
  const ArenaMemory memory = TaskCommunicator::allocate(gradient_elements, mirrored_bytes, std::move(buckets));
  for (std::size_t worker = 0; worker < group_.workers(); ++worker) {
    AlignedBuffer& received = received_.emplace_back(maps(worker) ? 0 : gradient_elements * sizeof(float));
    sources_.push_back(maps(worker)
                           ? reinterpret_cast<const float*>(mapped(worker, std::as_bytes(memory.gradients)).data())
                           : received.as<float>().data());
  }
  return memory;
}

bool ServerCommunicator::has_step() const {
  return std::ranges::none_of(begun_, [](const auto& steps) { return steps.empty(); });
}

StepNumbers ServerCommunicator::take_step() {
  step_ = begun_.front().front();
  for (std::size_t worker = 0; worker < begun_.size(); ++worker) {
    if (begun_[worker].front() != step_) {
      throw UsageError(
          fmt::format("the workers disagree about a step: {} makes step {} with the learning rate {}, {} makes step {} "
                      "with {}; use "
                      "the same callbacks on all workers",
                      group_.name_of(0), step_.iteration, step_.learning_rate.value_or(0), group_.name_of(worker),
                      begun_[worker].front().iteration, begun_[worker].front().learning_rate.value_or(0)));
    }
    begun_[worker].pop_front();
  }
  return step_;
}

ReducedShard ServerCommunicator::wait_reduced(std::size_t shard) {
  OwnShard& own = own_.at(shard);
  group_.wait([&] { return own.missing == 0; },
              [&] {
                const auto worker = static_cast<std::size_t>(std::ranges::find(own.has_it, false) - own.has_it.begin());
                return fmt::format("{} to send its gradient of bucket {}", group_.name_of(worker),
                                   layout_.shards[own.index].bucket);
              });
  const Range& range = layout_.shards[own.index].range;
  return {range.begin, range.end, sources_};
}

void ServerCommunicator::mark_updated(std::size_t shard) {
  OwnShard& own = own_.at(shard);
  own.missing = group_.workers();
  own.has_it.assign(group_.workers(), false);
  const ServerShard& its = layout_.shards[own.index];
  for (std::size_t worker = 0; worker < group_.workers(); ++worker) {
    send_parts(worker, ModelMessageKind::weights, model_, step_.iteration, own.index,
               {std::as_bytes(values_of(0, its)), copies_of(its)});
  }
}

ServerCommunicator::OwnShard& ServerCommunicator::own_shard_of(const ModelMessage& message) {
  const auto own = std::ranges::find(own_, message.shard, &OwnShard::index);
  if (own == own_.end())
    throw DataError(fmt::format("it sent shard {}, which this server does not hold", message.shard));
  return *own;
}

Places ServerCommunicator::place(std::size_t task, const ModelMessage& message) {
  if (task >= group_.workers() || message.kind != ModelMessageKind::gradient) return {};
  const OwnShard& own = own_shard_of(message);
  if (own.has_it[task] || maps(task)) return {};
  const Range& range = layout_.shards[own.index].range;
  return {std::as_writable_bytes(received_[task].as<float>().subspan(range.begin, range.size()))};
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
      begun_.at(task).push_back(numbers);
      return;
    }
    case ModelMessageKind::gradient: {
      OwnShard& own = own_shard_of(message);
      if (own.has_it[task]) throw DataError("it sent a gradient twice");
      if (!message.is_placed) copy_to(place(task, message), message.data());
      own.has_it[task] = true;
      --own.missing;
      return;
    }
    case ModelMessageKind::state: {
      if (task != 0) throw DataError("it sent weights, which only the first worker does");
      const ServerShard& shard = layout_.shards[own_shard_of(message).index];
      std::vector<std::span<std::byte>> places;
      for (std::size_t array = 0; array < layout_.arrays.size(); ++array)
        places.push_back(std::as_writable_bytes(values_of(array, shard)));
      copy_to(places, message.data());
      return;
    }
    case ModelMessageKind::fetch: return send_slots(task);
    case ModelMessageKind::weights:
    case ModelMessageKind::slots: break;
  }
  throw DataError("it sent a message that only servers send");
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
