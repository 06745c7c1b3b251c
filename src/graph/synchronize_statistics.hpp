// BatchNormalization with the statistics of the whole batch, of which each rank has a slice.
#pragma once

#include "graph/graph.hpp"

namespace lockstep {

/// Inserts the operations whose sums the ranks all-reduce for each BatchNormalization(synchronized=True) that splits
/// the batch between ranks: before it in forward, and before its backward. Parameters have their layouts already.
void synchronize_statistics(Graph& graph);

}  // namespace lockstep
