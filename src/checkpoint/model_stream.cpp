// See model_stream.hpp.
#include "checkpoint/model_stream.hpp"

#include "checkpoint/keras_config.hpp"

#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// No array has more dimensions: who sent this number has lost its mind in a damaged file.
constexpr std::uint64_t deepest = 32;

void write_values(const ByteSink& sink, const std::vector<SavedTensor>& tensors) {
  for (const SavedTensor& tensor : tensors) sink(std::as_bytes(std::span(tensor.values)));
}

bool read_values(const ByteSource& source, std::vector<SavedTensor>& tensors) {
  for (SavedTensor& tensor : tensors) {
    tensor.values.resize(static_cast<std::size_t>(tensor.shape.elements()));
    if (!source(std::as_writable_bytes(std::span(tensor.values)))) return false;
  }
  return true;
}

void write_state(const ByteSink& sink, const SavedState& state) {
  write_text(sink, state.text);
  write_number(sink, state.arrays.size());
  for (const SavedTensor& array : state.arrays) {
    write_number(sink, array.shape.rank());
    sink(std::as_bytes(array.shape.extents()));
  }
  write_values(sink, state.arrays);
}

std::optional<SavedState> read_state(const ByteSource& source) {
  SavedState state;
  auto text = read_text(source);
  const auto arrays = read_number(source);
  if (!text || !arrays) return std::nullopt;
  state.text = *std::move(text);
  for (std::uint64_t i = 0; i < *arrays; ++i) {
    const auto rank = read_number(source);
    if (!rank || *rank > deepest) return std::nullopt;
    std::vector<std::int64_t> extents(*rank);
    if (!source(std::as_writable_bytes(std::span(extents)))) return std::nullopt;
    state.arrays.push_back({std::to_string(i), Shape(std::move(extents)), {}});
  }
  if (!read_values(source, state.arrays)) return std::nullopt;
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

std::optional<std::string> read_text(const ByteSource& source, std::uint64_t most) {
  const auto size = read_number(source);
  if (!size || *size > most) return std::nullopt;
  std::string text(*size, '\0');
  return source(std::as_writable_bytes(std::span(text))) ? std::optional(std::move(text)) : std::nullopt;
}

void write_model(const ByteSink& sink, const SavedModel& model) {
  write_text(sink, sequential_to_json(model.architecture));
  write_text(sink, model.training ? training_to_json(*model.training) : std::string());
  write_number(sink, model.training ? static_cast<std::uint64_t>(model.training->iteration) : 0);
  write_values(sink, model.weights);
  if (model.training) write_values(sink, model.training->slots);
  write_number(sink, model.state ? 1 : 0);
  if (model.state) write_state(sink, *model.state);
}

// Shapes of weights and slots follow from the architecture, so only their values travel.
std::optional<SavedModel> read_model(const ByteSource& source, const std::string& name) {
  const auto architecture = read_text(source);
  if (!architecture) return std::nullopt;
  const auto training = read_text(source);
  const auto iteration = read_number(source);
  if (!training || !iteration) return std::nullopt;
  SavedModel model{sequential_from_json(*architecture, name), {}, {}};
  model.weights = weights_for(model.architecture);
  if (!read_values(source, model.weights)) return std::nullopt;
  if (!training->empty()) {
    model.training = training_from_json(*training, name);
    model.training->iteration = static_cast<std::int64_t>(*iteration);
    model.training->slots = slots_for(model.architecture, model.training->optimizer);
    if (!read_values(source, model.training->slots)) return std::nullopt;
  }
  const auto has_state = read_number(source);
  if (!has_state) return std::nullopt;
  if (*has_state != 0) {
    model.state = read_state(source);
    if (!model.state) return std::nullopt;
  }
  return model;
}

}  // namespace lockstep
