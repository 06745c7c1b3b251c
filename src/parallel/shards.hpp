// Assembles the variables of a tensor-parallel model: each rank holds shards of some variables, and all of the others.
#pragma once

#include "backend/backend.hpp"
#include "collective/communicator.hpp"
#include "parallel/sharding.hpp"
#include "plan/plan.hpp"

#include <lockstep/layers/architecture.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

class Shards {
 public:
  /// Packed shards by rank: weights and, for trainable variables, optimizer slots, in Keras' layout. The chief's also
  /// contain the unsharded variables.
  using PackedShards = std::vector<std::vector<float>>;

  /// `sharding` and `plan` must outlive it. `architecture` is the unsharded model, `plan` that of this rank's shard.
  Shards(const Architecture& architecture, const Sharding& sharding, const Plan& plan);

  /// A rank's shard of a variable; both in Keras' layout.
  [[nodiscard]] std::vector<float> shard_of(std::size_t variable, int rank, std::span<const float> whole) const;

  /// Assembled variables: for each its values and, if it is trainable, its optimizer slots.
  using FullVariables = std::vector<std::vector<std::span<float>>>;

  /// Collective. Packs this rank's shards, with `slots` optimizer slots for each trainable variable, and starts to
  /// gather them on the chief (Communicator::start_gather). `shards` must outlive the gather.
  void start_gather(Communicator& communicator, const Executable& executable, const Arenas& arenas, std::size_t slots,
                    PackedShards& shards, Communicator::OnGathered on_gathered, std::size_t max_steps) const;

  /// Copies elements [begin, end) of a rank's packed shards into the assembled variables.
  void unpack(int rank, std::span<const float> packed, std::size_t begin, std::size_t end,
              const FullVariables& variables) const;

  /// Collective. All weights, on all ranks.
  [[nodiscard]] std::vector<std::vector<float>> gather_weights(Communicator& communicator, const Executable& executable,
                                                               const Arenas& arenas) const;

 private:
  [[nodiscard]] bool is_sharded(std::size_t variable) const { return sharding_.variables[variable].length > 0; }
  [[nodiscard]] std::size_t elements(std::size_t variable, int rank) const;
  [[nodiscard]] std::size_t arrays(std::size_t variable, std::size_t slots) const {
    return variables_[variable].trainable ? 1 + slots : 1;
  }
  /// Floats in a rank's packed shards.
  [[nodiscard]] std::size_t shard_elements(int rank, std::size_t slots) const;
  void pack(int rank, const Executable& executable, const Arenas& arenas, std::size_t slots,
            std::vector<float>& packed) const;

  const Sharding& sharding_;
  const Plan& plan_;
  std::vector<ParameterInfo> variables_;  ///< with unsharded shapes
};

}  // namespace lockstep
