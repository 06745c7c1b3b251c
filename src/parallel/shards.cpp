// See shards.hpp. The chief also packs the unsharded variables.
#include "parallel/shards.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace lockstep {

namespace {

/// Calls copy(offset in the variable, offset in the shard, count) for each contiguous run of values.
template <typename Copy>
void for_each_run(const ShardAxis& variable, const ChannelRange& mine, const Copy& copy) {
  const std::int64_t run = mine.size() * variable.inner;
  for (std::int64_t outer = 0; outer < variable.outer; ++outer) {
    copy((outer * variable.length + mine.begin) * variable.inner, outer * run, run);
  }
}

}  // namespace

Shards::Shards(const Architecture& architecture, const Sharding& sharding, const Plan& plan)
    : sharding_(sharding), plan_(plan) {
  for (const LayerInfo& layer : architecture.layers()) {
    variables_.insert(variables_.end(), layer.parameters.begin(), layer.parameters.end());
  }
}

std::size_t Shards::elements(std::size_t variable, int rank) const {
  if (!is_sharded(variable)) return rank == 0 ? static_cast<std::size_t>(variables_[variable].shape.elements()) : 0;
  const ShardAxis& axis = sharding_.variables[variable];
  return static_cast<std::size_t>(axis.outer * channels_of(axis.length, rank, sharding_.ranks).size() * axis.inner);
}

std::size_t Shards::shard_elements(int rank, std::size_t slots) const {
  std::size_t size = 0;
  for (std::size_t v = 0; v < variables_.size(); ++v) size += elements(v, rank) * arrays(v, slots);
  return size;
}

std::vector<float> Shards::shard_of(std::size_t variable, int rank, std::span<const float> whole) const {
  if (!is_sharded(variable)) return {whole.begin(), whole.end()};
  std::vector<float> part(elements(variable, rank));
  const ShardAxis& axis = sharding_.variables[variable];
  for_each_run(axis, channels_of(axis.length, rank, sharding_.ranks),
               [&](std::int64_t in_whole, std::int64_t in_part, std::int64_t count) {
                 std::copy_n(whole.begin() + in_whole, count, part.begin() + in_part);
               });
  return part;
}

void Shards::pack(int rank, const Executable& executable, const Arenas& arenas, std::size_t slots,
                  std::vector<float>& packed) const {
  packed.resize(shard_elements(rank, slots));
  auto rest = std::span(packed);
  for (std::size_t v = 0; v < variables_.size(); ++v) {
    const std::size_t count = elements(v, rank);
    if (count == 0) continue;
    const Arenas& its = arenas.of(plan_.graph.parameters[v]);
    for (std::size_t array = 0; array < arrays(v, slots); ++array) {
      const std::span<const float> arena =
          array == 0 ? std::span<const float>(its.weights)
                     : std::span<const float>(its.slots).subspan((array - 1) * its.elements, its.elements);
      executable.read_parameter(v, arena, rest.first(count));
      rest = rest.subspan(count);
    }
  }
}

void Shards::start_gather(Communicator& communicator, const Executable& executable, const Arenas& arenas,
                          std::size_t slots, PackedShards& shards, Communicator::OnGathered on_gathered,
                          std::size_t max_steps) const {
  const int me = communicator.rank();
  shards.resize(static_cast<std::size_t>(sharding_.ranks));
  pack(me, executable, arenas, slots, shards[static_cast<std::size_t>(me)]);
  std::vector<std::span<std::byte>> bytes;
  for (int rank = 0; rank < sharding_.ranks; ++rank) {
    std::vector<float>& part = shards[static_cast<std::size_t>(rank)];
    if (me == 0) part.resize(shard_elements(rank, slots));
    bytes.push_back(std::as_writable_bytes(std::span(part)));
  }
  communicator.start_gather(bytes, 0, std::move(on_gathered), max_steps);
}

void Shards::unpack(int rank, std::span<const float> packed, std::size_t begin, std::size_t end,
                    const FullVariables& variables) const {
  std::size_t first = 0;  // offset of the array in the packed shards
  for (std::size_t v = 0; v < variables_.size() && first < end; ++v) {
    const std::size_t count = elements(v, rank);
    // A shard consists of contiguous runs of the variable, one for each index of the outer dimension.
    std::size_t run = count;
    std::size_t row = count;
    std::size_t before = 0;
    if (const ShardAxis& axis = sharding_.variables[v]; is_sharded(v)) {
      const ChannelRange mine = channels_of(axis.length, rank, sharding_.ranks);
      run = static_cast<std::size_t>(mine.size() * axis.inner);
      row = static_cast<std::size_t>(axis.length * axis.inner);
      before = static_cast<std::size_t>(mine.begin * axis.inner);
    }
    for (const std::span<float> whole : variables[v]) {
      const std::size_t last = std::min(end, first + count);
      for (std::size_t at = std::max(begin, first); at < last;) {
        const std::size_t in_array = at - first;
        const std::size_t in_run = in_array % run;
        const std::size_t together = std::min(run - in_run, last - at);
        std::copy_n(packed.data() + at, together, whole.data() + in_array / run * row + before + in_run);
        at += together;
      }
      first += count;
    }
  }
}

std::vector<std::vector<float>> Shards::gather_weights(Communicator& communicator, const Executable& executable,
                                                       const Arenas& arenas) const {
  std::vector<std::vector<float>> weights;
  FullVariables variables;
  for (const ParameterInfo& variable : variables_) {
    weights.emplace_back(static_cast<std::size_t>(variable.shape.elements()));
    variables.push_back({weights.back()});
  }
  std::vector<float> packed;
  for (int rank = 0; rank < sharding_.ranks; ++rank) {
    if (rank == communicator.rank()) {
      pack(rank, executable, arenas, 0, packed);
    } else {
      packed.resize(shard_elements(rank, 0));
    }
    communicator.broadcast(std::as_writable_bytes(std::span(packed)), rank);
    unpack(rank, packed, 0, packed.size(), variables);
  }
  return weights;
}

}  // namespace lockstep
