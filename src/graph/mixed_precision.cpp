// See mixed_precision.hpp.
#include "graph/mixed_precision.hpp"

#include "graph/operation.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <span>
#include <variant>

namespace lockstep {

bool are_mixed(const std::vector<LayerInfo>& layers, Precision precision) {
  if (precision != Precision::automatic) return precision == Precision::mixed_bfloat16;
  if (std::ranges::none_of(layers, [](const LayerInfo& layer) { return layer.precision != Precision::float32; }))
    return false;
  const auto has_weights = [](const LayerInfo& layer) { return !layer.parameters.empty(); };
  const auto last = std::find_if(layers.rbegin(), layers.rend(), has_weights);
  for (const LayerInfo& layer : std::span(layers.begin(), last == layers.rend() ? layers.end() : last.base() - 1)) {
    if (layer.precision != Precision::float32 || std::holds_alternative<Input>(layer.layer)) continue;
    throw UsageError(
        fmt::format("layer '{}' ({}) is float32, but other layers are mixed_bfloat16; choose one for all: "
                    "--precision mixed_bfloat16 or --precision float32",
                    layer.name, layer.class_name));
  }
  return true;
}

void choose_types(Graph& graph) {
  if (graph.outputs.size() > 1) {
    throw UsageError(
        fmt::format("the model has {} outputs, and in mixed_bfloat16 Lockstep takes models with one; use --precision "
                    "float32",
                    graph.outputs.size()));
  }
  for (TensorSpec& tensor : graph.tensors) tensor.type = ElementType::bfloat16;
  for (const Operation& operation : graph.forward) {
    if (operation.kind == OperationKind::activity_penalty) graph.tensors[operation.output].type = ElementType::float32;
    if (!reads_indices(operation.kind)) continue;
    const int alias = graph.tensors[operation.input].alias;
    const int indices = alias >= 0 ? alias : operation.input;
    graph.tensors[indices].type = ElementType::float32;  // bfloat16 has too few digits for indices and bins
    for (TensorSpec& tensor : graph.tensors) {
      if (tensor.alias == indices) tensor.type = ElementType::float32;
    }
  }
  for (int tensor = graph.outputs.front().tensor; tensor >= 0;) {
    const int root = graph.tensors[tensor].alias >= 0 ? graph.tensors[tensor].alias : tensor;
    for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
      if (static_cast<int>(t) == root || graph.tensors[t].alias == root) graph.tensors[t].type = ElementType::float32;
    }
    const auto operation = std::ranges::find(graph.forward, root, &Operation::output);
    if (!operation->operands.empty()) {
      throw UsageError(
          fmt::format("layer '{}' ({}) merges the model's outputs, but in mixed_bfloat16 a layer with "
                      "weights must follow the last merge; use --precision float32",
                      graph.layers[operation->layer].name, graph.layers[operation->layer].class_name));
    }
    tensor = traits_of(*operation).has_kernel ? -1 : operation->input;
  }
}

}  // namespace lockstep
