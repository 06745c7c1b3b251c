// See model_serialization.hpp.
#include "checkpoint/model_serialization.hpp"

#include "checkpoint/keras/keras_config.hpp"

#include <lockstep/checkpoint/model_from_json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// The largest rank and number of elements of an array. A larger one means that the child misread a damaged file.
constexpr std::uint64_t max_rank = 32;
constexpr std::int64_t max_elements = std::int64_t{1} << 40U;

bool is_plausible(std::span<const std::int64_t> extents) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : extents) {
    if (extent < 0 || (extent > 0 && elements > max_elements / extent)) return false;
    elements *= extent;
  }
  return true;
}

void write_values(const ByteSink& sink, const std::vector<NamedTensor>& tensors) {
  for (const NamedTensor& tensor : tensors) sink(std::as_bytes(std::span(tensor.values)));
}

/// Takes the memory for the values from `bytes_left`, and fails before it allocates more.
bool read_values(const ByteSource& source, std::vector<NamedTensor>& tensors, std::uint64_t& bytes_left) {
  for (NamedTensor& tensor : tensors) {
    const auto elements = static_cast<std::uint64_t>(tensor.shape.elements());
    if (elements > bytes_left / sizeof(float)) return false;
    bytes_left -= elements * sizeof(float);
    tensor.values.resize(elements);
    if (!source(std::as_writable_bytes(std::span(tensor.values)))) return false;
  }
  return true;
}

void write_state(const ByteSink& sink, const SerializedTrainingState& state) {
  write_text(sink, state.text);
  write_number(sink, state.arrays.size());
  for (const NamedTensor& array : state.arrays) {
    write_number(sink, array.shape.rank());
    sink(std::as_bytes(array.shape.extents()));
  }
  write_values(sink, state.arrays);
}

std::optional<SerializedTrainingState> read_state(const ByteSource& source, std::uint64_t& bytes_left) {
  SerializedTrainingState state;
  auto text = read_text(source, std::min(max_text_bytes, bytes_left));
  const auto arrays = read_number(source);
  if (!text || !arrays) return std::nullopt;
  state.text = *std::move(text);
  for (std::uint64_t i = 0; i < *arrays; ++i) {
    const auto rank = read_number(source);
    if (!rank || *rank > max_rank) return std::nullopt;
    std::vector<std::int64_t> extents(*rank);
    if (!source(std::as_writable_bytes(std::span(extents))) || !is_plausible(extents)) return std::nullopt;
    state.arrays.push_back({std::to_string(i), Shape(std::move(extents)), {}});
  }
  if (!read_values(source, state.arrays, bytes_left)) return std::nullopt;
  return state;
}

}  // namespace

void write_number(const ByteSink& sink, std::uint64_t number) { sink(std::as_bytes(std::span(&number, 1))); }

void write_text(const ByteSink& sink, const std::string& text) {
  write_number(sink, text.size());
  sink(std::as_bytes(std::span(text)));
}

std::optional<std::uint64_t> read_number(const ByteSource& source) {
  std::uint64_t number = 0;
  return source(std::as_writable_bytes(std::span(&number, 1))) ? std::optional(number) : std::nullopt;
}

std::optional<std::string> read_text(const ByteSource& source, std::uint64_t max_bytes) {
  const auto size = read_number(source);
  if (!size || *size > max_bytes) return std::nullopt;
  std::string text(*size, '\0');
  return source(std::as_writable_bytes(std::span(text))) ? std::optional(std::move(text)) : std::nullopt;
}

void write_model(const ByteSink& sink, const ModelData& model) {
  write_text(sink, architecture_to_json(model.architecture));
  write_text(sink, model.compile_state ? training_config_to_json(*model.compile_state) : std::string());
  write_number(sink, model.compile_state ? static_cast<std::uint64_t>(model.compile_state->iteration) : 0);
  write_values(sink, model.weights);
  if (model.compile_state) write_values(sink, model.compile_state->slots);
  const CompileRefusals refusals = model.compile_state ? model.compile_state->refusals : CompileRefusals();
  for (const std::string* refusal : {&refusals.optimizer, &refusals.loss, &refusals.metrics}) {
    write_text(sink, *refusal);
  }
  write_number(sink, model.training_state ? 1 : 0);
  if (model.training_state) write_state(sink, *model.training_state);
}

// Shapes of weights and slots follow from the architecture, so only their values are sent.
std::optional<ModelData> read_model(const ByteSource& source, const std::string& name, std::uint64_t max_bytes) {
  const std::uint64_t max_text = std::min(max_text_bytes, max_bytes);
  std::uint64_t bytes_left = max_bytes;
  const auto architecture = read_text(source, max_text);
  if (!architecture) return std::nullopt;
  const auto training = read_text(source, max_text);
  const auto iteration = read_number(source);
  if (!training || !iteration) return std::nullopt;
  ModelData model{model_from_json(*architecture, name), {}, {}};
  model.weights = weights_for(model.architecture);
  if (!read_values(source, model.weights, bytes_left)) return std::nullopt;
  if (!training->empty()) {
    model.compile_state = training_config_from_json(*training, name, model.architecture);
    model.compile_state->iteration = static_cast<std::int64_t>(*iteration);
    model.compile_state->slots = slots_for(model.architecture, model.compile_state->optimizer);
    if (!read_values(source, model.compile_state->slots, bytes_left)) return std::nullopt;
  }
  CompileRefusals refusals;
  for (std::string* refusal : {&refusals.optimizer, &refusals.loss, &refusals.metrics}) {
    auto text = read_text(source, max_text);
    if (!text) return std::nullopt;
    *refusal = *std::move(text);
  }
  if (model.compile_state) model.compile_state->refusals = std::move(refusals);
  const auto has_state = read_number(source);
  if (!has_state) return std::nullopt;
  if (*has_state != 0) {
    model.training_state = read_state(source, bytes_left);
    if (!model.training_state) return std::nullopt;
  }
  return model;
}

}  // namespace lockstep
