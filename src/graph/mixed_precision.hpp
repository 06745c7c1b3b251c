// Which tensors of a graph are bfloat16.
#pragma once

#include "graph/graph.hpp"

#include <vector>

namespace lockstep {

/// Whether layers are mixed_bfloat16: as `precision` says, and if it is automatic, as they say themselves. Then the
/// last one with weights, and those after it, may be float32, as their outputs are in any case. Throws UsageError if
/// float32 layers stand before or between the others.
[[nodiscard]] bool are_mixed(const std::vector<LayerInfo>& layers, Precision precision);

/// Makes all tensors bfloat16 but those that the loss reads: the output of the last weighted layer, and what is
/// computed from it. Throws UsageError if that layer merges others, and for a model of several outputs.
void choose_types(Graph& graph);

}  // namespace lockstep
