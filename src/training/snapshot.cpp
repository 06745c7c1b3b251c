// See snapshot.hpp.
#include "training/snapshot.hpp"

#include <utility>
#include <variant>

namespace lockstep {

std::size_t place_of_slot(const Optimizer& optimizer, std::size_t kind, std::size_t kinds, std::size_t weight,
                          std::size_t weights) noexcept {
  // Adam's two arrays of a weight stand side by side, the other optimizers' one kind after another.
  const bool interleaved = std::holds_alternative<Adam>(optimizer) || std::holds_alternative<AdamW>(optimizer);
  return interleaved ? weight * kinds + kind : kind * weights + weight;
}

void Snapshot::take(const Arenas& arenas, Communicator& communicator, const CompileOptions& options,
                    std::uint64_t iteration) {
  options_ = options;
  iteration_ = iteration;
  if (shards_ != nullptr) {
    const auto slots = static_cast<std::size_t>(slots_of(options.optimizer));
    shards_->start_gather(communicator, executable_, arenas, slots, parts_);
    return;
  }
  const std::size_t slots = arenas.elements * static_cast<std::size_t>(slots_of(options.optimizer));
  values_.resize(arenas.elements + slots);
  const std::span<float> values(values_);
  executable_.read(arenas.weights, values.first(arenas.elements));
  if (slots > 0) executable_.read(arenas.slots.first(slots), values.subspan(arenas.elements));
}

std::vector<float> Snapshot::parameter(std::size_t index, std::size_t arena) const {
  if (shards_ != nullptr) {
    return shards_->whole(index, arena, static_cast<std::size_t>(slots_of(options_.optimizer)), parts_);
  }
  const ParameterSpec& spec = plan_.graph.parameters[index];
  const std::span<const float> stored = std::span(values_).subspan(arena * plan_.elements + spec.offset, spec.storage);
  std::vector<float> values(static_cast<std::size_t>(spec.info.shape.elements()));
  executable_.unpack_parameter(index, stored, values);
  return values;
}

SavedModel Snapshot::to_saved_model() const {
  SavedModel saved{architecture_, weights_for(architecture_), {}};
  SavedTraining training{options_.optimizer, options_.loss, options_.metrics, static_cast<std::int64_t>(iteration_),
                         slots_for(architecture_, options_.optimizer)};
  const auto kinds = static_cast<std::size_t>(slots_of(options_.optimizer));
  const std::size_t trainable = kinds > 0 ? training.slots.size() / kinds : 0;
  std::size_t weight = 0;  // among the trainable ones
  for (std::size_t p = 0; p < saved.weights.size(); ++p) {
    saved.weights[p].values = parameter(p, 0);
    if (!plan_.graph.parameters[p].info.trainable) continue;
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      const std::size_t place = place_of_slot(options_.optimizer, kind, kinds, weight, trainable);
      training.slots.at(place).values = parameter(p, 1 + kind);
    }
    ++weight;
  }
  saved.training = std::move(training);
  return saved;
}

}  // namespace lockstep
