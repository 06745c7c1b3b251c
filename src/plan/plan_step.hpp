// One step of a plan: an operation to compute, or a call of the communicator or the optimizer.
#pragma once

#include <cstddef>
#include <variant>

namespace lockstep {

/// Runs an operation on this rank.
struct Compute {
  std::size_t operation;  ///< index in Plan::compute
};

/// Marks this rank's gradients of the bucket as complete, so that the ranks may reduce them.
struct MarkReady {
  std::size_t bucket;
};

/// Waits for this rank's shard of the reduced bucket, updates its weights, and publishes them. At this step the update
/// becomes due; Schedule decides when it runs.
struct Update {
  std::size_t bucket;
};

/// Waits until all shards of the bucket are updated, because later steps read its weights.
struct WaitUpdated {
  std::size_t bucket;
};

/// Updates weights that no other rank reduces or reads.
struct UpdateLocal {
  std::size_t range;  ///< index in Plan::local_ranges
};

/// Starts to send the blocks that the previous operation has packed. Does not wait.
struct StartAllToAll {
  std::size_t all_to_all;  ///< index in Graph::all_to_alls
};

/// Waits for the blocks that the next operation unpacks.
struct FinishAllToAll {
  std::size_t all_to_all;  ///< index in Graph::all_to_alls
};

using PlanStep = std::variant<Compute, MarkReady, Update, WaitUpdated, UpdateLocal, StartAllToAll, FinishAllToAll>;

/// Whether the step is an `Alternative` of this bucket: is_step_of<MarkReady>(step, 0).
template <typename Alternative>
[[nodiscard]] bool is_step_of(const PlanStep& step, std::size_t bucket) {
  const auto* alternative = std::get_if<Alternative>(&step);
  return alternative != nullptr && alternative->bucket == bucket;
}

}  // namespace lockstep
