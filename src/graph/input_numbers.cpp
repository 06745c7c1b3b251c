// See input_numbers.hpp.
#include "graph/input_numbers.hpp"

#include "core/enum_names.hpp"
#include "layers/layer_registry.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

template <typename... Kinds>
bool is_any_of(const Layer& layer) {
  return (std::holds_alternative<Kinds>(layer) || ...);
}

bool keeps_numbers(const Layer& layer) { return is_any_of<Flatten, Reshape, Identity>(layer); }

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

}  // namespace

double byte_scale_of(const Architecture& flattened, std::size_t input) {
  if (flattened.input_type(input) != InputType::float32) return 1;
  bool is_scaled = false;
  spread(flattened, input, [&is_scaled](const LayerInfo& info) {
    if (is_any_of<Rescaling, Normalization, Embedding>(info.layer)) is_scaled = true;
    return info.parameters.empty();  // no weights were applied yet
  });
  return is_scaled ? 1 : 1.0 / 255;
}

void check_integer_input(const Architecture& flattened) {
  for (std::size_t input = 0; input < flattened.inputs().size(); ++input) {
    const InputType type = flattened.input_type(input);
    if (type == InputType::float32) continue;
    spread(flattened, input, [type](const LayerInfo& info) {
      const bool keeps_integers = keeps_numbers(info.layer);
      if (!keeps_integers && !is_any_of<Embedding, Rescaling, Dense>(info.layer)) {
        throw UsageError(fmt::format(
            "layer '{}' ({}) reads an Input of {}, and Keras computes there in integers or fails; make the Input "
            "float32, or put a Rescaling(1) before the layer",
            info.name, info.class_name, enum_name(type)));
      }
      return keeps_integers;
    });
  }
}

const LayerInfo* embedding_of_input(const Architecture& flattened, std::size_t input) {
  const LayerInfo* smallest = nullptr;
  const auto rows = [](const LayerInfo& info) { return std::get<Embedding>(info.layer).input_dim; };
  spread(flattened, input, [&](const LayerInfo& info) {
    if (is_any_of<Embedding>(info.layer) && (smallest == nullptr || rows(info) < rows(*smallest))) smallest = &info;
    return keeps_numbers(info.layer);
  });
  return smallest;
}

}  // namespace lockstep
