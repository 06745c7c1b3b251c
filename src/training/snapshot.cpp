// See snapshot.hpp.
#include "training/snapshot.hpp"

#include <algorithm>
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
    if (communicator.rank() == 0) prepare_whole();
    here_.assign(static_cast<std::size_t>(communicator.size()), 0);
    put_.assign(here_.size(), 0);
    const auto slots = static_cast<std::size_t>(slots_of(options.optimizer));
    shards_->start_gather(communicator, executable_, arenas, slots, parts_,
                          [this](int rank, std::size_t bytes) { take_in(rank, bytes); });
    return;
  }
  const std::size_t slots = arenas.elements * static_cast<std::size_t>(slots_of(options.optimizer));
  values_.resize(arenas.elements + slots);
  const std::span<float> values(values_);
  executable_.read(arenas.weights, values.first(arenas.elements));
  if (slots > 0) executable_.read(arenas.slots.first(slots), values.subspan(arenas.elements));
}

void Snapshot::prepare_whole() {
  if (!whole_) {
    whole_ = outline();
    wholes_.clear();
    for (const auto& arrays : arrays_of(*whole_)) {
      const Shape& shape = whole_->weights[wholes_.size()].shape;
      std::vector<std::span<float>>& spans = wholes_.emplace_back();
      for (std::vector<float>* const array : arrays) {
        array->resize(static_cast<std::size_t>(shape.elements()));
        spans.emplace_back(*array);
      }
    }
  }
  whole_->state.reset();
  whole_->training->optimizer = options_.optimizer;
  whole_->training->iteration = static_cast<std::int64_t>(iteration_);
}

void Snapshot::take_in(int rank, std::size_t bytes) {
  here_[static_cast<std::size_t>(rank)] += bytes;
  put_until(rank, here_[static_cast<std::size_t>(rank)] / sizeof(float));
  std::size_t come = 0;
  std::size_t all = 0;
  for (std::size_t other = 1; other < parts_.size(); ++other) {
    come += here_[other];
    all += parts_[other].size() * sizeof(float);
  }
  const double share = static_cast<double>(come) / static_cast<double>(all);  // of the own part, as of the others'
  put_until(0, static_cast<std::size_t>(share * static_cast<double>(parts_[0].size())));
}

void Snapshot::put_until(int rank, std::size_t end) {
  std::size_t& begin = put_[static_cast<std::size_t>(rank)];
  shards_->put(rank, parts_[static_cast<std::size_t>(rank)], begin, end, wholes_);
  begin = std::max(begin, end);
}

void Snapshot::use(const std::function<void(SavedModel&)>& use) {
  if (shards_ != nullptr) {
    for (std::size_t rank = 0; rank < parts_.size(); ++rank) put_until(static_cast<int>(rank), parts_[rank].size());
  } else {
    prepare_whole();
    unpack();
  }
  use(*whole_);
}

void Snapshot::unpack() {
  for (std::size_t p = 0; p < wholes_.size(); ++p) {
    const ParameterSpec& spec = plan_.graph.parameters[p];
    for (std::size_t array = 0; array < wholes_[p].size(); ++array) {
      const std::span<const float> stored =
          std::span(values_).subspan(array * plan_.elements + spec.offset, spec.storage);
      executable_.unpack_parameter(p, stored, wholes_[p][array]);
    }
  }
}

SavedModel Snapshot::outline() const {
  return {architecture_, weights_for(architecture_),
          SavedTraining{options_.optimizer, options_.loss, options_.metrics, static_cast<std::int64_t>(iteration_),
                        slots_for(architecture_, options_.optimizer)}};
}

std::vector<std::vector<std::vector<float>*>> Snapshot::arrays_of(SavedModel& model) const {
  std::vector<std::vector<std::vector<float>*>> arrays;
  std::vector<SavedTensor>& slots = model.training->slots;
  const auto kinds = static_cast<std::size_t>(slots_of(options_.optimizer));
  const std::size_t trainable = kinds > 0 ? slots.size() / kinds : 0;
  std::size_t weight = 0;  // among the trainable ones
  for (SavedTensor& variable : model.weights) {
    std::vector<std::vector<float>*>& its = arrays.emplace_back();
    its.push_back(&variable.values);
    if (!plan_.graph.parameters[arrays.size() - 1].info.trainable) continue;
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      its.push_back(&slots.at(place_of_slot(options_.optimizer, kind, kinds, weight, trainable)).values);
    }
    ++weight;
  }
  return arrays;
}

}  // namespace lockstep
