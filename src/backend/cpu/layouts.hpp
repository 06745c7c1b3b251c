// Chooses the layout of every tensor and the algorithm of every convolution.
#pragma once

#include "backend/cpu/convolution_costs.hpp"
#include "backend/cpu/onednn.hpp"
#include "graph/graph.hpp"

#include <cstddef>

namespace lockstep {

/// Chooses the cheapest layouts by the table of convolutions, conversions included: for chains the minimum, with
/// branches a local one. Operations that multiply by no weights write the layout that they read.
void choose_layouts(const onednn::Context& context, Graph& graph, std::size_t num_examples,
                    const KernelOptions& options);

}  // namespace lockstep
