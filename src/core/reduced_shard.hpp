// The shard of the arenas that a rank updates: what a communicator returns and an executable takes.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep {

/// Elements [begin, end) of the arenas; empty if the rank owns no shard. The gradient of element i is sources[0][i] +
/// sources[1][i] + ..., each pointer being the base of a gradient arena.
struct ReducedShard {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::span<const float* const> sources = {};
  bool is_local = false;  ///< a shard of this rank's local arenas, whose gradients are complete
  /// The factor, for each parameter, that clips a trainable weight's gradient. Empty: no clipping.
  std::span<const float> clip_scales = {};
};

}  // namespace lockstep
