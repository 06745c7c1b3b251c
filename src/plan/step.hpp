// Runs a plan: compute goes to the device, contributions and reductions to the communicator, shares back to the device.
#pragma once

#include "backend/backend.hpp"
#include "collective/communicator.hpp"
#include "plan/plan.hpp"

#include <array>
#include <cstdint>

namespace lockstep {

/// Seconds spent since the last `take`, by what they were spent on.
struct StepProfile {
  double input = 0;      ///< gathering examples
  double forward = 0;    ///< kernels
  double loss = 0;
  double backward = 0;   ///< kernels
  double optimizer = 0;  ///< summing sources and updating weights
  double reduce = 0;     ///< waiting for peers, and in MPI
  std::uint64_t steps = 0;
};

class Step {
 public:
  /// All three must outlive the step.
  Step(const Plan& plan, Executable& executable, Communicator& communicator)
      : plan_(plan), executable_(executable), communicator_(communicator) {}

  /// Forward, backward, reduction and update. `iteration` counts from 1. When it returns, the metric sums of the
  /// whole global batch lie in the metrics parameter's weights.
  void train(const StepContext& context, const Optimizer& optimizer, std::uint64_t iteration);

  /// Forward only; this rank's metric sums lie in the metrics parameter's gradient.
  void infer(const StepContext& context);

  [[nodiscard]] StepProfile take_profile() noexcept;

 private:
  void run_compute(const Operation& operation, const StepContext& context);

  const Plan& plan_;
  Executable& executable_;
  Communicator& communicator_;
  StepProfile profile_;
};

}  // namespace lockstep
