// Keras' order of a graph's layers and calls.
#pragma once

#include <lockstep/layers/architecture.hpp>

#include <vector>

namespace lockstep {

/// Reorders a graph as Keras' Functional does, and drops what its outputs do not depend on. Layers come in the order of
/// `model.layers`: by descending depth, the longest path from the layer to an output; of equal depth, in the order of a
/// depth-first walk from the outputs. Files list weights in this order. Calls come in that walk's postorder, each after
/// those that it reads. Throws UsageError for a cycle.
/// Formula: Keras 3, ops/function.py, map_graph().
[[nodiscard]] LayerGraph order_as_keras(const LayerGraph& graph);

}  // namespace lockstep
