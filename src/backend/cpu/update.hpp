// Optimizers over flat arenas: the sum of the ranks' gradients, clipped or not, and the step, in one pass over a share.
#pragma once

#include "backend/backend.hpp"

#include <cstdint>
#include <span>

namespace lockstep {

/// Updates `share`, each parameter by its rule. Slot k of element i is arenas.slots[k * arenas.elements + i].
void update_share(const Graph& graph, const Arenas& arenas, const UpdateShare& share, const Optimizer& optimizer,
                  std::uint64_t iteration, int threads);

/// Adds the squares of the summed gradients of trainable weights in `share` to their parameters' sums. Any number of
/// threads gives the same bits.
void add_squares_of_share(const Graph& graph, const UpdateShare& share, std::span<double> sums, int threads);

}  // namespace lockstep
