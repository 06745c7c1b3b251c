// Optimizers over flat arenas: sums the ranks' gradients, clips the sum and updates the weights in one pass over a
// shard.
#pragma once

#include "backend/backend.hpp"

#include <cstdint>
#include <span>

namespace lockstep {

/// Updates the weights of `shard`, each parameter by its UpdateRule. `iteration` counts from 1. Slot k of element i is
/// arenas.slots[k * arenas.elements + i].
void apply_optimizer(const Graph& graph, const Arenas& arenas, const ReducedShard& shard, const Optimizer& optimizer,
                     std::uint64_t iteration, int threads);

/// Adds the squared gradients by which a step changes the trainable weights in `shard` to `sums`, one sum per
/// parameter. The bits do not depend on the number of threads.
void sum_squared_gradients(const Graph& graph, const Arenas& arenas, const ReducedShard& shard,
                           const Optimizer& optimizer, std::uint64_t iteration, std::span<double> sums, int threads);

}  // namespace lockstep
