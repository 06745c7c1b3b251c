// See input_numbers.hpp.
#include "graph/input_numbers.hpp"

#include "core/enum_names.hpp"
#include "layers/layer_registry.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

/// Calls visit(layer) for each call that the numbers of an input reach, in order. They are handed on by those for
/// which it returns true.
template <typename Visit>
void spread(const Architecture& flattened, std::size_t input, const Visit& visit) {
  const std::vector<LayerCall>& calls = flattened.calls();
  std::vector<bool> carries(calls.size());
  carries[static_cast<std::size_t>(flattened.inputs()[input])] = true;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const bool is_reached =
        std::ranges::any_of(calls[i].inputs, [&](int of) { return carries[static_cast<std::size_t>(of)]; });
    if (is_reached) carries[i] = visit(flattened.layers()[static_cast<std::size_t>(calls[i].layer)]);
  }
}

/// Of the Embeddings that look up an input's raw numbers, directly or behind layers that only change shapes, the one
/// with the fewest rows. Null if there is none.
const LayerInfo* embedding_of_input(const Architecture& flattened, std::size_t input) {
  const LayerInfo* smallest = nullptr;
  const auto rows = [](const LayerInfo& info) { return std::get<Embedding>(info.layer).input_dim; };
  spread(flattened, input, [&](const LayerInfo& info) {
    if (std::holds_alternative<Embedding>(info.layer) && (smallest == nullptr || rows(info) < rows(*smallest)))
      smallest = &info;
    return keeps_numbers(info.layer);
  });
  return smallest;
}

}  // namespace

double byte_scale_of(const Architecture& flattened, std::size_t input) {
  if (flattened.input_type(input) != InputType::float32) return 1;
  bool is_scaled = false;
  spread(flattened, input, [&is_scaled](const LayerInfo& info) {
    if (reads_raw_numbers(info.layer)) is_scaled = true;
    return info.parameters.empty();  // no weights were applied yet
  });
  return is_scaled ? 1 : 1.0 / 255;
}

void check_integers(const Architecture& flattened) {
  const std::vector<LayerCall>& calls = flattened.calls();
  std::vector<std::string> integers(calls.size());  // what makes a call's output integers; empty: it is floats
  for (std::size_t input = 0; input < flattened.inputs().size(); ++input) {
    const InputType type = flattened.input_type(input);
    if (type == InputType::float32) continue;
    integers[static_cast<std::size_t>(flattened.inputs()[input])] = fmt::format("an Input of {}", enum_name(type));
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const LayerInfo& info = flattened.layers()[static_cast<std::size_t>(calls[i].layer)];
    const auto* const bins = std::get_if<Discretization>(&info.layer);
    if (bins != nullptr && bins->output_mode == OutputMode::integer) integers[i] = "the bins of a Discretization";
    for (const int read : calls[i].inputs) {
      const std::string& of = integers[static_cast<std::size_t>(read)];
      if (of.empty()) continue;
      const bool keeps_integers = keeps_numbers(info.layer);
      if (keeps_integers) integers[i] = of;
      if (keeps_integers || takes_integers(info.layer)) continue;
      throw UsageError(
          fmt::format("layer '{}' ({}) reads {}, and Keras computes there in integers or fails; {}put a Rescaling(1) "
                      "before the layer",
                      info.name, info.class_name, of, of.starts_with("an Input") ? "make the Input float32, or " : ""));
    }
  }
}

const LayerInfo* rescaling_of_input(const Architecture& flattened, std::size_t input) {
  const LayerInfo* found = nullptr;
  spread(flattened, input, [&](const LayerInfo& info) {
    if (found == nullptr && std::holds_alternative<Rescaling>(info.layer)) found = &info;
    return info.parameters.empty();
  });
  return found;
}

bool fits(double number, InputType type) {
  if (type == InputType::float32) return true;
  if (number != std::trunc(number)) return false;
  switch (type) {
    case InputType::float32: return true;
    case InputType::boolean: return number == 0 || number == 1;
    case InputType::uint8: return number >= 0 && number <= std::numeric_limits<std::uint8_t>::max();
    case InputType::int32: return number >= -0x1p31 && number < 0x1p31;
    case InputType::int64: return std::abs(number) < 0x1p63;
  }
  return false;
}

bool is_row(double number, std::int64_t rows) {
  return number >= 0 && number < static_cast<double>(rows) && number == std::trunc(number);
}

NumbersOfInput numbers_of_input(const Architecture& flattened, std::size_t input) {
  NumbersOfInput numbers{.type = flattened.input_type(input)};
  if (const LayerInfo* const reader = embedding_of_input(flattened, input)) {
    numbers.embedding = reader->name;
    numbers.rows = std::get<Embedding>(reader->layer).input_dim;
  }
  return numbers;
}

}  // namespace lockstep
