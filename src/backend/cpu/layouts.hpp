// Chooses tensor layouts.
#pragma once

#include "backend/backend.hpp"
#include "backend/cpu/onednn.hpp"

#include <cstddef>

namespace lockstep {

/// Chooses the layout of every tensor. Blocks of channels are fastest, but a convolution that does not support them (6
/// filters, or an output that must be channels last) would fall back to oneDNN's reference code, which is about a
/// hundred times slower. If there is one, all tensors get Keras' order, which every kernel supports.
void choose_layouts(const onednn::Context& context, Graph& graph, std::size_t num_examples);

}  // namespace lockstep
