// Chooses the layout of every tensor and the algorithm of every convolution.
#pragma once

#include "backend/cpu/convolution_costs.hpp"
#include "backend/cpu/onednn.hpp"
#include "graph/graph.hpp"

#include <cstddef>

namespace lockstep {

/// Chooses what costs least by the table of convolutions, conversions between unlike layouts included. Operations
/// without a kernel write the layout that they read.
void choose_layouts(const onednn::Context& context, Graph& graph, std::size_t num_examples,
                    const KernelOptions& options);

}  // namespace lockstep
