// Measures how long a plan's operations take on this machine, on random weights and images.
#pragma once

#include "backend/backend.hpp"
#include "plan/plan.hpp"

#include <lockstep/optimizers/optimizers.hpp>

#include <cstddef>
#include <vector>

namespace lockstep {

/// Processor seconds of each step of Plan::training, 0 for communication, with `num_examples` examples on this rank.
/// `ranks_on_host` ranks of this host share its updates; `ranks` is the size of the world.
[[nodiscard]] std::vector<double> measure_kernels(const Backend& backend, const Plan& plan, const Optimizer& optimizer,
                                                  std::size_t num_examples, int ranks_on_host, int ranks);

/// One layer's forward or backward operation, in all its microbatches or chunks.
struct MeasuredOperation {
  Operation operation;         ///< the first of them
  std::string implementation;  ///< see Executable::implementation
  std::size_t calls = 0;
  double seconds = 0;  ///< of all calls in one step
};

/// Times the operations of a plan's training step on one rank of a host of its own.
[[nodiscard]] std::vector<MeasuredOperation> measure_operations(const Backend& backend, const Plan& plan,
                                                                const Optimizer& optimizer, std::size_t num_examples,
                                                                int ranks);

}  // namespace lockstep
