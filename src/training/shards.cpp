// See shards.hpp. The chief also packs what is not divided.
#include "training/shards.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace lockstep {

namespace {

/// Calls copy(place in the whole, place in the part, count) for each run of values that lie together.
template <typename Copy>
void for_each_run(const VariableAxis& variable, const Channels& mine, const Copy& copy) {
  const std::int64_t run = mine.size() * variable.inner;
  for (std::int64_t outer = 0; outer < variable.outer; ++outer) {
    copy((outer * variable.axis + mine.begin) * variable.inner, outer * run, run);
  }
}

}  // namespace

Shards::Shards(const Sequential& architecture, const FeatureDivision& division, const Plan& plan)
    : division_(division), plan_(plan) {
  for (const LayerInfo& layer : architecture.layers()) {
    variables_.insert(variables_.end(), layer.parameters.begin(), layer.parameters.end());
  }
}

std::size_t Shards::elements(std::size_t variable, int rank) const {
  if (!is_divided(variable)) return rank == 0 ? static_cast<std::size_t>(variables_[variable].shape.elements()) : 0;
  const VariableAxis& axis = division_.variables[variable];
  return static_cast<std::size_t>(axis.outer * channels_of(axis.axis, rank, division_.ranks).size() * axis.inner);
}

std::size_t Shards::size_of_part(int rank, std::size_t slots) const {
  std::size_t size = 0;
  for (std::size_t v = 0; v < variables_.size(); ++v) size += elements(v, rank) * arrays(v, slots);
  return size;
}

std::vector<float> Shards::part_of(std::size_t variable, int rank, std::span<const float> whole) const {
  if (!is_divided(variable)) return {whole.begin(), whole.end()};
  std::vector<float> part(elements(variable, rank));
  const VariableAxis& axis = division_.variables[variable];
  for_each_run(axis, channels_of(axis.axis, rank, division_.ranks),
               [&](std::int64_t in_whole, std::int64_t in_part, std::int64_t count) {
                 std::copy_n(whole.begin() + in_whole, count, part.begin() + in_part);
               });
  return part;
}

void Shards::pack(int rank, const Executable& executable, const Arenas& arenas, std::size_t slots,
                  std::vector<float>& packed) const {
  packed.resize(size_of_part(rank, slots));
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
                          std::size_t slots, Parts& parts, Communicator::PartCame came) const {
  const int me = communicator.rank();
  parts.resize(static_cast<std::size_t>(division_.ranks));
  pack(me, executable, arenas, slots, parts[static_cast<std::size_t>(me)]);
  std::vector<std::span<std::byte>> bytes;
  for (int rank = 0; rank < division_.ranks; ++rank) {
    std::vector<float>& part = parts[static_cast<std::size_t>(rank)];
    if (me == 0) part.resize(size_of_part(rank, slots));
    bytes.push_back(std::as_writable_bytes(std::span(part)));
  }
  communicator.start_gather(bytes, 0, std::move(came));
}

void Shards::put(int rank, std::span<const float> part, std::size_t begin, std::size_t end,
                 const Wholes& wholes) const {
  std::size_t first = 0;  // of the array, in the part
  for (std::size_t v = 0; v < variables_.size() && first < end; ++v) {
    const std::size_t count = elements(v, rank);
    // What is divided lies in the whole in runs, each a row of what is outside of the axis.
    std::size_t run = count;
    std::size_t row = count;
    std::size_t before = 0;
    if (const VariableAxis& axis = division_.variables[v]; is_divided(v)) {
      const Channels mine = channels_of(axis.axis, rank, division_.ranks);
      run = static_cast<std::size_t>(mine.size() * axis.inner);
      row = static_cast<std::size_t>(axis.axis * axis.inner);
      before = static_cast<std::size_t>(mine.begin * axis.inner);
    }
    for (const std::span<float> whole : wholes[v]) {
      const std::size_t last = std::min(end, first + count);
      for (std::size_t at = std::max(begin, first); at < last;) {
        const std::size_t in_array = at - first;
        const std::size_t in_run = in_array % run;
        const std::size_t together = std::min(run - in_run, last - at);
        std::copy_n(part.data() + at, together, whole.data() + in_array / run * row + before + in_run);
        at += together;
      }
      first += count;
    }
  }
}

std::vector<std::vector<float>> Shards::gather_weights(Communicator& communicator, const Executable& executable,
                                                       const Arenas& arenas) const {
  std::vector<std::vector<float>> weights;
  Wholes wholes;
  for (const ParameterInfo& variable : variables_) {
    weights.emplace_back(static_cast<std::size_t>(variable.shape.elements()));
    wholes.push_back({weights.back()});
  }
  std::vector<float> part;
  for (int rank = 0; rank < division_.ranks; ++rank) {
    if (rank == communicator.rank()) {
      pack(rank, executable, arenas, 0, part);
    } else {
      part.resize(size_of_part(rank, 0));
    }
    communicator.broadcast(std::as_writable_bytes(std::span(part)), rank);
    put(rank, part, 0, part.size(), wholes);
  }
  return weights;
}

}  // namespace lockstep
