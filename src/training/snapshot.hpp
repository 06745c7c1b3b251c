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
#include <functional>
#include <optional>
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

  /// Hands it over in Keras' layout and order, once it is complete.
  void use(const std::function<void(SavedModel&)>& use);

 private:
  /// A file's model without its values.
  [[nodiscard]] SavedModel outline() const;
  /// Of each variable the values and the optimizer's arrays, where the model has them.
  [[nodiscard]] std::vector<std::vector<std::vector<float>*>> arrays_of(SavedModel& model) const;
  void prepare_whole();
  void unpack();
  void take_in(int rank, std::size_t bytes);
  void put_until(int rank, std::size_t end);

  const Sequential& architecture_;
  const Plan& plan_;
  const Executable& executable_;
  const Shards* shards_;
  // All memory is kept for the next time: new pages would cost more than the copies.
  std::vector<float> values_;  ///< the arena of weights, then those of the slots
  /// Instead, of a divided model: what was and is being gathered, and put in its place while it comes, which takes less
  /// from training than to do so at the end.
  Shards::Parts parts_;
  std::vector<std::size_t> here_;  ///< by rank: bytes that have come
  std::vector<std::size_t> put_;   ///< by rank: floats in their places
  std::optional<SavedModel> whole_;
  Shards::Wholes wholes_;  ///< its arrays
  CompileOptions options_;
  std::uint64_t iteration_ = 0;
};

/// Where Keras keeps the `kind`-th of `kinds` arrays of the `weight`-th of `weights` trainable weights.
[[nodiscard]] std::size_t place_of_slot(const Optimizer& optimizer, std::size_t kind, std::size_t kinds,
                                        std::size_t weight, std::size_t weights) noexcept;

}  // namespace lockstep
