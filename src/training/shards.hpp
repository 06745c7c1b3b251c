// The variables of a model that is divided by features, whole again: each rank holds its slice of some of them, and all
// hold the others.
#pragma once

#include "backend/backend.hpp"
#include "collective/communicator.hpp"
#include "plan/division.hpp"
#include "plan/plan.hpp"

#include <lockstep/nn/sequential.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

class Shards {
 public:
  /// What each rank gives to put variables together, by rank: weights and, of the trainable ones, the optimizer's
  /// arrays, in Keras' layout. Others than the chief give only what is divided.
  using Parts = std::vector<std::vector<float>>;

  /// `division` and `plan` must outlive it. `architecture` is the whole model, `plan` this rank's part.
  Shards(const Sequential& architecture, const FeatureDivision& division, const Plan& plan);

  /// A rank's part of a variable; both in Keras' layout.
  [[nodiscard]] std::vector<float> part_of(std::size_t variable, int rank, std::span<const float> whole) const;

  /// Variables, whole: of each its values and, of the trainable ones, the optimizer's arrays.
  using Wholes = std::vector<std::vector<std::span<float>>>;

  /// Collective. Copies this rank's part, with `slots` arrays of the optimizer's for each trainable variable, and
  /// begins to gather them on the chief (Communicator::start_gather), for which `parts` must live.
  void start_gather(Communicator& communicator, const Executable& executable, const Arenas& arenas, std::size_t slots,
                    Parts& parts, Communicator::PartCame came) const;

  /// Copies elements of what a rank gave, from `begin` to before `end`, to their places.
  void put(int rank, std::span<const float> part, std::size_t begin, std::size_t end, const Wholes& wholes) const;

  /// Collective. All weights, on all ranks.
  [[nodiscard]] std::vector<std::vector<float>> gather_weights(Communicator& communicator, const Executable& executable,
                                                               const Arenas& arenas) const;

 private:
  [[nodiscard]] bool is_divided(std::size_t variable) const { return division_.variables[variable].axis > 0; }
  [[nodiscard]] std::size_t elements(std::size_t variable, int rank) const;
  [[nodiscard]] std::size_t arrays(std::size_t variable, std::size_t slots) const {
    return variables_[variable].trainable ? 1 + slots : 1;
  }
  /// Floats in what a rank gives.
  [[nodiscard]] std::size_t size_of_part(int rank, std::size_t slots) const;
  void pack(int rank, const Executable& executable, const Arenas& arenas, std::size_t slots,
            std::vector<float>& packed) const;

  const FeatureDivision& division_;
  const Plan& plan_;
  std::vector<ParameterInfo> variables_;  ///< whole
};

}  // namespace lockstep
