// Optimizers over flat arenas: the sum of the ranks' gradients and the step, in one pass over a share.
#pragma once

#include "backend/backend.hpp"

#include <cstdint>

namespace lockstep {

/// Updates `share`, each parameter by its rule. Slot k of element i is arenas.slots[k * arenas.elements + i].
void update_share(const Graph& graph, const Arenas& arenas, const UpdateShare& share, const Optimizer& optimizer,
                  std::uint64_t iteration, int threads);

}  // namespace lockstep
