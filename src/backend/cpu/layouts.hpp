// Which layout each tensor has.
#pragma once

#include "backend/backend.hpp"
#include "backend/cpu/onednn.hpp"

#include <cstddef>

namespace lockstep {

/// Chooses the layout of every tensor from the convolutions' wishes. Blocks of channels are fastest, but one
/// convolution that cannot have them (6 filters, or an output that must lie as Keras orders it) would fall to oneDNN's
/// reference code, a hundred times slower: then all lie in Keras' order, which every kernel knows.
void choose_layouts(const onednn::Context& context, Graph& graph, std::size_t rows);

}  // namespace lockstep
