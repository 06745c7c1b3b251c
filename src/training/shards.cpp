// See shards.hpp. The chief also packs what is not divided.
#include "training/shards.hpp"

#include <algorithm>
#include <cstdint>

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

std::size_t Shards::place(std::size_t variable, std::size_t array, std::size_t slots, int rank) const {
  std::size_t before = 0;
  for (std::size_t v = 0; v < variable; ++v) before += elements(v, rank) * arrays(v, slots);
  return array == 0 ? before : before + array * elements(variable, rank);
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
  packed.resize(place(variables_.size(), 0, slots, rank));
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

void Shards::make_room(std::size_t slots, int rank, Parts& parts) const {
  parts[static_cast<std::size_t>(rank)].resize(place(variables_.size(), 0, slots, rank));
}

void Shards::start_gather(Communicator& communicator, const Executable& executable, const Arenas& arenas,
                          std::size_t slots, Parts& parts) const {
  const int me = communicator.rank();
  parts.resize(static_cast<std::size_t>(division_.ranks));
  pack(me, executable, arenas, slots, parts[static_cast<std::size_t>(me)]);
  std::vector<std::span<std::byte>> bytes;
  for (int rank = 0; rank < division_.ranks; ++rank) {
    if (me == 0) make_room(slots, rank, parts);
    bytes.push_back(std::as_writable_bytes(std::span(parts[static_cast<std::size_t>(rank)])));
  }
  communicator.start_gather(bytes, 0);
}

Shards::Parts Shards::gather_weights(Communicator& communicator, const Executable& executable,
                                     const Arenas& arenas) const {
  const int me = communicator.rank();
  Parts parts(static_cast<std::size_t>(division_.ranks));
  pack(me, executable, arenas, 0, parts[static_cast<std::size_t>(me)]);
  for (int rank = 0; rank < division_.ranks; ++rank) {
    make_room(0, rank, parts);
    communicator.broadcast(std::as_writable_bytes(std::span(parts[static_cast<std::size_t>(rank)])), rank);
  }
  return parts;
}

std::vector<float> Shards::whole(std::size_t variable, std::size_t array, std::size_t slots,
                                 const std::vector<std::vector<float>>& parts) const {
  std::vector<float> values(static_cast<std::size_t>(variables_[variable].shape.elements()));
  for (int rank = 0; rank < division_.ranks; ++rank) {
    const float* part = parts[static_cast<std::size_t>(rank)].data() + place(variable, array, slots, rank);
    if (!is_divided(variable)) {
      std::copy_n(part, values.size(), values.begin());
      break;
    }
    const VariableAxis& axis = division_.variables[variable];
    for_each_run(axis, channels_of(axis.axis, rank, division_.ranks),
                 [&](std::int64_t in_whole, std::int64_t in_part, std::int64_t count) {
                   std::copy_n(part + in_part, count, values.begin() + in_whole);
                 });
  }
  return values;
}

}  // namespace lockstep
