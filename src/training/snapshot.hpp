// Weights and optimizer state of one moment, copied out of the arenas in one go: training loses the time of that copy;
// what is made of it (Keras' layout, a file) may be made on another thread. Where ranks hold slices, their copies
// travel to the chief while training goes on.
#pragma once

#include "backend/backend.hpp"
#include "checkpoint/saved_model.hpp"
#include "plan/plan.hpp"
#include "training/shards.hpp"

#include <lockstep/training/model.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

class Snapshot {
 public:
  /// All must outlive the snapshot. `shards`: of a model divided by features, else null.
  Snapshot(const Sequential& architecture, const Plan& plan, const Executable& executable, const Shards* shards)
      : architecture_(architecture), plan_(plan), executable_(executable), shards_(shards) {}

  /// Copies everything; the memory is kept for the next time. Of a model divided by features it is collective: the
  /// chief's is complete once the communicator has gathered what the others hold, and until then theirs is in use, too.
  void take(const Arenas& arenas, Communicator& communicator, const CompileOptions& options, std::uint64_t iteration);

  /// In Keras' layout and order, once it is complete.
  [[nodiscard]] SavedModel to_saved_model() const;

 private:
  [[nodiscard]] std::vector<float> parameter(std::size_t index, std::size_t arena) const;

  const Sequential& architecture_;
  const Plan& plan_;
  const Executable& executable_;
  const Shards* shards_;
  std::vector<float> values_;  ///< the arena of weights, then those of the slots
  Shards::Parts parts_;        ///< instead, of a divided model
  CompileOptions options_;
  std::uint64_t iteration_ = 0;
};

/// Where Keras keeps the `kind`-th of `kinds` arrays of the `weight`-th of `weights` trainable weights.
[[nodiscard]] std::size_t place_of_slot(const Optimizer& optimizer, std::size_t kind, std::size_t kinds,
                                        std::size_t weight, std::size_t weights) noexcept;

}  // namespace lockstep
