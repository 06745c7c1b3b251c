// See snapshot.hpp.
#include "session/snapshot.hpp"

#include "checkpoint/model_data.hpp"
#include "optimizers/optimizer_registry.hpp"
#include "session/mirrors.hpp"
#include "session/nonfinite_error.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <utility>

namespace lockstep {

void Snapshot::capture(const Arenas& arenas, Communicator& communicator, const CompileOptions& options,
                       std::uint64_t iteration, std::size_t max_gather_steps) {
  options_ = options;
  iteration_ = iteration;
  is_unpacked_ = false;
  if (shards_ != nullptr) {
    if (communicator.rank() == 0) prepare_model_data();
    received_bytes_.assign(static_cast<std::size_t>(communicator.size()), 0);
    unpacked_.assign(received_bytes_.size(), 0);
    const auto slots = static_cast<std::size_t>(num_slots(options.optimizer));
    shards_->start_gather(
        communicator, executable_, arenas, slots, packed_shards_,
        [this](int rank, std::size_t bytes) { receive_bytes(rank, bytes); }, max_gather_steps);
    return;
  }
  const std::size_t slots = arenas.elements * static_cast<std::size_t>(num_slots(options.optimizer));
  values_.resize(arenas.weights.size() + slots);
  const std::span<float> values(values_);
  executable_.read(arenas.weights, values.first(arenas.weights.size()));
  if (slots > 0) executable_.read(arenas.slots.first(slots), values.subspan(arenas.weights.size()));
}

void Snapshot::read(const Arenas& arenas, const CompileOptions& options, std::uint64_t iteration) {
  options_ = options;
  iteration_ = iteration;
  prepare_model_data();
  for (std::size_t p = 0; p < full_arrays_.size(); ++p) {
    for (std::size_t array = 0; array < full_arrays_[p].size(); ++array) {
      const std::span<const float> arena =
          array == 0 ? arenas.weights : arenas.slots.subspan((array - 1) * arenas.elements, arenas.elements);
      executable_.read_parameter(p, arena, full_arrays_[p][array]);
    }
  }
  is_unpacked_ = true;
}

std::uint64_t Snapshot::mirror_digest() const {
  return digest_of_copy(plan_, static_cast<std::size_t>(num_slots(options_.optimizer)), values_);
}

void Snapshot::prepare_model_data() {
  if (!model_data_) {
    model_data_ = make_empty_model();
    full_arrays_.clear();
    for (const auto& arrays : arrays_of(*model_data_)) {
      const Shape& shape = model_data_->weights[full_arrays_.size()].shape;
      std::vector<std::span<float>>& spans = full_arrays_.emplace_back();
      for (std::vector<float>* const array : arrays) {
        array->resize(static_cast<std::size_t>(shape.elements()));
        spans.emplace_back(*array);
      }
    }
  }
  model_data_->training_state.reset();
  model_data_->compile_state->optimizer = options_.optimizer;
  model_data_->compile_state->iteration = static_cast<std::int64_t>(iteration_);
}

void Snapshot::receive_bytes(int rank, std::size_t bytes) {
  received_bytes_[static_cast<std::size_t>(rank)] += bytes;
  unpack_until(rank, received_bytes_[static_cast<std::size_t>(rank)] / sizeof(float));
  std::size_t received = 0;
  std::size_t total = 0;
  for (std::size_t other = 1; other < packed_shards_.size(); ++other) {
    received += received_bytes_[other];
    total += packed_shards_[other].size() * sizeof(float);
  }
  // The chief's own shard is unpacked at the same pace as the others arrive.
  const double fraction = static_cast<double>(received) / static_cast<double>(total);
  unpack_until(0, static_cast<std::size_t>(fraction * static_cast<double>(packed_shards_[0].size())));
}

void Snapshot::unpack_until(int rank, std::size_t end) {
  std::size_t& begin = unpacked_[static_cast<std::size_t>(rank)];
  shards_->unpack(rank, packed_shards_[static_cast<std::size_t>(rank)], begin, end, full_arrays_);
  begin = std::max(begin, end);
}

void Snapshot::visit(const std::function<void(ModelData&)>& visitor) {
  if (shards_ != nullptr) {
    for (std::size_t rank = 0; rank < packed_shards_.size(); ++rank)
      unpack_until(static_cast<int>(rank), packed_shards_[rank].size());
  } else if (!is_unpacked_) {
    prepare_model_data();
    unpack();
    is_unpacked_ = true;
  }
  const CompileState& state = *model_data_->compile_state;
  auto problem = find_nonfinite(model_data_->weights);
  if (!problem) problem = find_nonfinite(state.slots);
  if (problem) {
    throw NonfiniteError(
        fmt::format("the model is not saved, because {} after optimizer step {}", *problem, state.iteration),
        static_cast<std::uint64_t>(state.iteration));
  }
  visitor(*model_data_);
}

void Snapshot::unpack() {
  for (std::size_t p = 0; p < full_arrays_.size(); ++p) {
    const ParameterSpec& spec = plan_.graph.parameters[p];
    for (std::size_t array = 0; array < full_arrays_[p].size(); ++array) {
      const std::span<const float> stored =
          std::span(values_).subspan(offset_in_copy(plan_, array) + spec.offset, spec.storage);
      executable_.unpack_parameter(p, stored, full_arrays_[p][array]);
    }
  }
}

ModelData Snapshot::make_empty_model() const {
  CompileState state;
  static_cast<CompileOptions&>(state) = options_;
  state.iteration = static_cast<std::int64_t>(iteration_);
  state.slots = slots_for(architecture_, options_.optimizer);
  return {architecture_, weights_for(architecture_), std::move(state)};
}

std::vector<std::vector<std::vector<float>*>> Snapshot::arrays_of(ModelData& model) const {
  std::vector<std::vector<std::vector<float>*>> arrays;
  std::vector<NamedTensor>& slots = model.compile_state->slots;
  const Slots kinds = slots_of(options_.optimizer);
  const std::size_t trainable = kinds.empty() ? 0 : slots.size() / kinds.size();
  std::size_t weight = 0;  // index among the trainable weights
  for (NamedTensor& variable : model.weights) {
    std::vector<std::vector<float>*>& its = arrays.emplace_back();
    its.push_back(&variable.values);
    if (!plan_.graph.parameters[arrays.size() - 1].info.trainable) continue;
    for (std::size_t slot = 0; slot < kinds.size(); ++slot) {
      its.push_back(&slots.at(slot_index(kinds, slot, weight, trainable)).values);
    }
    ++weight;
  }
  return arrays;
}

}  // namespace lockstep
