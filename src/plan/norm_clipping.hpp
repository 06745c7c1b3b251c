// Clips gradients by norm. Weights can be updated only after all gradients are reduced and all ranks know the norms. So
// each shard's squared norm is computed as the shard arrives, and its update is deferred. Then the ranks all-reduce the
// squared norms, and every shard is updated with its parameters' clip scales.
//
// Each element of a gradient counts once in the world: an all-reduced one on the first host, one of a sharded variable
// on the rank that has the shard, one of a replicated variable on the first rank. A GPU has the full gradients and
// computes the scales on the device (Executable::make_clip_scales).
#pragma once

#include "backend/backend.hpp"
#include "collective/communicator.hpp"
#include "plan/plan.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

class NormClipping {
 public:
  /// A shard whose update waits for the norms.
  struct DeferredUpdate {
    std::size_t place = 0;  ///< index in Plan::training of the Update or UpdateLocal
    ReducedShard shard;
  };

  /// All arguments must outlive the object.
  NormClipping(const Plan& plan, Executable& executable, Communicator& communicator);

  /// Whether a bucket holds gradients of weights, not only metrics or partial sums.
  [[nodiscard]] bool has_gradients(std::size_t bucket) const noexcept { return has_gradients_[bucket]; }

  /// Adds a shard's squared gradients and defers its update. Its sources must not change before the update.
  void defer(std::size_t place, const ReducedShard& shard, const Optimizer& optimizer, std::uint64_t iteration);

  /// All-reduces the squared norms and sets the clip scales of the deferred shards. Call it when all shards of the step
  /// are deferred. Collective.
  void all_reduce_norms(const Clipping& clipping);

  /// The deferred updates in order; valid until `clear`.
  [[nodiscard]] std::span<const DeferredUpdate> deferred_updates() const noexcept { return deferred_updates_; }
  void clear() { deferred_updates_.clear(); }

 private:
  Executable& executable_;
  Communicator& communicator_;
  std::vector<bool> has_gradients_;    ///< by bucket
  std::vector<bool> is_counted_here_;  ///< by parameter: whether this rank adds its elements to the norm
  std::vector<DeferredUpdate> deferred_updates_;
  std::vector<double> squared_norms_;  ///< by parameter
  std::vector<float> clip_scales_;     ///< by parameter
};

}  // namespace lockstep
