// See task_communicator.hpp.
#include "collective/parameter_server/task_communicator.hpp"

#include "cluster/net/host_id.hpp"
#include "cluster/world/world.hpp"
#include "collective/argument_checks.hpp"
#include "core/environment.hpp"
#include "core/format_number.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace lockstep {

namespace {

constexpr std::size_t max_exchanged_bytes = std::size_t{64} << 20U;

}  // namespace

std::string TaskCommunicator::describe() const {
  return count_of(group_.servers(), "parameter server") +
         (shares_mirror_ ? ", one copy of the weights in shared memory" : "");
}

ArenaMemory TaskCommunicator::allocate(std::size_t gradient_elements, std::size_t mirrored_bytes,
                                       std::vector<Range> buckets) {
  check_buckets(buckets, gradient_elements);
  buckets_ = std::move(buckets);
  constexpr std::size_t page = 4096;
  const std::size_t gradient_bytes = (gradient_elements * sizeof(float) + page - 1) / page * page;
  arenas_ = SharedMemory(gradient_bytes + mirrored_bytes);
  gradients_ = {reinterpret_cast<float*>(arenas_.bytes().data()), gradient_elements};
  mirrored_ = arenas_.bytes().subspan(gradient_bytes);
  map_arenas();
  if (shares_mirror_ && rank() != 0) mirrored_ = mapped_.front().bytes().subspan(gradient_bytes);
  return {gradients_, mirrored_};
}

void TaskCommunicator::map_arenas() {
  const Environment environment = current_environment();
  const std::string host = host_id() + value_of(environment, simulated_hosts_variable);
  const std::vector<std::string> handles =
      group_.exchange(group_.participants(), arenas_.handle(host), "the allocation of arenas");
  mapped_.resize(group_.workers());
  std::string is_mapped;
  for (std::size_t worker = 0; worker < group_.workers(); ++worker) {
    if (!group_.is_server() && (worker > 0 || rank() == 0 || !can_share_mirror())) continue;
    mapped_[worker] = SharedMemory(handles.at(worker), host, arenas_.bytes().size());
    is_mapped += maps(worker) ? '1' : '0';
  }
  const std::vector<std::string> all = group_.exchange(group_.participants(), is_mapped, "the mapping of arenas");
  const auto own = static_cast<std::size_t>(rank());
  for (std::size_t task = 0; task < all.size(); ++task) {
    const bool is_asked = !group_.is_server() && task >= group_.workers() && !group_.has_returned();
    is_mapped_by_.push_back(is_asked && all[task].size() > own && all[task][own] == '1');
  }
  const auto maps_all = [](const std::string& their) { return their.find('0') == std::string::npos; };
  shares_mirror_ = can_share_mirror() && std::ranges::all_of(all, maps_all);
}

std::span<std::byte> TaskCommunicator::mapped(std::size_t worker, std::span<const std::byte> part) const {
  return mapped_[worker].bytes().subspan(static_cast<std::size_t>(part.data() - arenas_.bytes().data()), part.size());
}

void TaskCommunicator::send_parts(std::size_t task, ModelMessageKind kind, std::uint64_t model, std::uint64_t iteration,
                                  std::uint64_t shard, std::vector<std::span<const std::byte>> parts) {
  if (is_mapped_by(task)) parts.clear();
  std::size_t bytes = 0;
  for (const std::span<const std::byte> part : parts) bytes += part.size();
  group_.send(task, encode_beginning(kind, model, iteration, shard, bytes), std::move(parts));
}

ReducedShard TaskCommunicator::wait_reduced(std::size_t bucket) {
  const std::size_t begin = buckets_.at(bucket).begin;
  return {begin, begin, {}};
}

std::span<float> TaskCommunicator::values_of(std::size_t array, const ServerShard& shard) const {
  const auto all = std::span(reinterpret_cast<float*>(mirrored_.data()), mirrored_.size() / sizeof(float));
  return all.subspan(layout_.arrays.at(array) + shard.range.begin, shard.range.size());
}

std::span<std::byte> TaskCommunicator::copies_of(const ServerShard& shard) const {
  if (!layout_.low_precision) return {};
  constexpr std::size_t bytes = 2;
  return mirrored_.subspan(*layout_.low_precision + bytes * shard.range.begin, bytes * shard.range.size());
}

void TaskCommunicator::copy_to(std::span<const std::span<std::byte>> places, std::span<const std::byte> bytes) {
  std::size_t expected = 0;
  for (const std::span<std::byte> place : places) expected += place.size();
  if (bytes.size() != expected)
    throw DataError(fmt::format("it sent {} bytes of a shard that has {}", bytes.size(), expected));
  for (const std::span<std::byte> place : places) {
    if (!place.empty()) std::memcpy(place.data(), bytes.data(), place.size());
    bytes = bytes.subspan(place.size());
  }
}

void TaskCommunicator::all_reduce_sum(std::span<double> values) {
  const std::vector<std::string> all = group_.exchange(
      reducing_tasks(), {reinterpret_cast<const char*>(values.data()), values.size_bytes()}, "an all-reduce");
  std::vector<double> its(values.size());
  std::ranges::fill(values, 0.0);
  for (const std::string& bytes : all) {
    copy_to({{std::as_writable_bytes(std::span(its))}}, std::as_bytes(std::span(bytes)));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += its[i];
  }
}

void TaskCommunicator::broadcast(std::span<std::byte> bytes, int root) {
  check_root(root, size());
  for (std::size_t at = 0; at < bytes.size(); at += max_exchanged_bytes) {
    const std::span<std::byte> part = bytes.subspan(at, std::min(max_exchanged_bytes, bytes.size() - at));
    std::string own;
    if (rank() == root) own.assign(reinterpret_cast<const char*>(part.data()), part.size());
    const std::vector<std::string> all = group_.exchange(group_.participants(), std::move(own), "a broadcast");
    if (rank() != root) copy_to({{part}}, std::as_bytes(std::span(all.at(static_cast<std::size_t>(root)))));
  }
}

void TaskCommunicator::start_gather(std::span<const std::span<std::byte>> /*shards*/, int root,
                                    OnGathered /*on_gathered*/, std::size_t /*max_steps*/) {
  check_root(root, size());
  throw InternalError("parameter servers gather nothing in the background");
}

std::vector<std::string> TaskCommunicator::all_gather(const std::string& text) {
  check_all_gather_size(text.size(), rank());
  return group_.exchange(group_.participants(), text, "an all-gather");
}

void TaskCommunicator::barrier() { static_cast<void>(group_.exchange(group_.participants(), "", "a barrier")); }

}  // namespace lockstep
