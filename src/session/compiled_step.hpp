// A model's step compiled for one global batch size: plan, executable, and the Step that runs them. All steps of a
// model use the same arenas and the same communicator.
#pragma once

#include "backend/backend.hpp"
#include "collective/communicator.hpp"
#include "plan/plan.hpp"
#include "plan/step.hpp"

#include <cstddef>
#include <memory>
#include <utility>

namespace lockstep {

/// Each member depends on those before it.
struct CompiledStep {
  /// The arenas' memory and the communicator must outlive it.
  CompiledStep(std::size_t global_batch_size, Plan its_plan, const Backend& backend, const Arenas& arenas,
               const float* local_gradients, Communicator& communicator)
      : batch_size(global_batch_size),
        plan(std::move(its_plan)),
        executable(backend.compile(plan.graph, plan.compute, arenas, plan.graph.capacity)),
        step(plan, *executable, communicator, local_gradients) {}
  CompiledStep(const CompiledStep&) = delete;
  CompiledStep& operator=(const CompiledStep&) = delete;

  const std::size_t batch_size;
  const Plan plan;
  const std::unique_ptr<Executable> executable;
  Step step;
};

}  // namespace lockstep
