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

}  // namespace

double byte_scale_of(const Architecture& flattened) {
  if (flattened.input_type() != InputType::float32) return 1;
  std::vector<bool> is_near_input(flattened.calls().size());  // no weights were applied yet
  for (std::size_t i = 0; i < flattened.calls().size(); ++i) {
    const LayerCall& call = flattened.calls()[i];
    const LayerInfo& info = flattened.layers()[static_cast<std::size_t>(call.layer)];
    const bool reads = call.inputs.empty() || std::ranges::any_of(call.inputs, [&](int of) {
                         return is_near_input[static_cast<std::size_t>(of)];
                       });
    if (reads && is_any_of<Rescaling, Normalization, Embedding>(info.layer)) return 1;
    is_near_input[i] = reads && info.parameters.empty();
  }
  return 1.0 / 255;
}

void check_integer_input(const Architecture& flattened) {
  const InputType type = flattened.input_type();
  if (type == InputType::float32) return;
  std::vector<bool> has_integers(flattened.calls().size());
  for (std::size_t i = 0; i < flattened.calls().size(); ++i) {
    const LayerCall& call = flattened.calls()[i];
    const LayerInfo& info = flattened.layers()[static_cast<std::size_t>(call.layer)];
    const bool reads =
        std::ranges::any_of(call.inputs, [&](int of) { return has_integers[static_cast<std::size_t>(of)]; });
    has_integers[i] = call.inputs.empty() || (reads && is_any_of<Flatten, Reshape, Identity>(info.layer));
    if (!reads || is_any_of<Flatten, Reshape, Identity, Embedding, Rescaling, Dense>(info.layer)) continue;
    throw UsageError(fmt::format(
        "layer '{}' ({}) reads an Input of {}, and Keras computes there in integers or fails; make the Input "
        "float32, or put a Rescaling(1) before the layer",
        info.name, info.class_name, enum_name(type)));
  }
}

}  // namespace lockstep
