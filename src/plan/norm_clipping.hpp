// Clipping by norm: no weight may be updated before all gradients are summed up and their norms known to all ranks. So
// shares are measured as they come, and kept; then ranks add up their squares, a few numbers, and every share is
// updated with its variables' scales. Each element of a gradient counts once in the world: what is summed over the
// hosts where the first host has it, a divided variable wherever there is a part of it, one that all ranks compute on
// the first. GPUs, each of which has all gradients, find the scales by themselves, within the step that they record.
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
  /// A share that waits for the norms.
  struct Held {
    std::size_t operation = 0;  ///< the update, as a place in Plan::training
    UpdateShare share;
  };

  /// All three must outlive it.
  NormClipping(const Plan& plan, const Executable& executable, Communicator& communicator);

  /// Whether a bucket has gradients of weights, and not only what is summed up within the step.
  [[nodiscard]] bool concerns(std::size_t bucket) const noexcept { return has_gradients_[bucket]; }

  /// Measures a share. What it is the sum of must stay as it is.
  void hold(std::size_t operation, const UpdateShare& share);

  /// Collective, once all shares of the step are held: adds up the squares and gives each share its scales.
  void agree(const Clipping& clipping);

  /// In the order in which they came; valid until the next step.
  [[nodiscard]] std::span<const Held> held() const noexcept { return held_; }
  void release() { held_.clear(); }

 private:
  const Executable& executable_;
  Communicator& communicator_;
  std::vector<bool> has_gradients_;  ///< by bucket
  std::vector<bool> counts_;         ///< by parameter: whether this rank counts what it has of it
  std::vector<Held> held_;
  std::vector<double> squares_;  ///< by parameter
  std::vector<float> scales_;    ///< by parameter
};

}  // namespace lockstep
