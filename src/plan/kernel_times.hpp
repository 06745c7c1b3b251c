// How long a plan's operations take on this machine: each is run a few times, on made-up weights and images.
#pragma once

#include "backend/backend.hpp"
#include "plan/plan.hpp"

#include <lockstep/nn/optimizers.hpp>

#include <cstddef>
#include <vector>

namespace lockstep {

/// Seconds of each operation of Plan::training, without communication, for batches of `rows` examples on this rank.
/// `neighbours`: ranks of this host, which share its updates; `ranks`: all. What others do on this core meanwhile does
/// not count.
[[nodiscard]] std::vector<double> measure_kernels(const Backend& backend, const Plan& plan, const Optimizer& optimizer,
                                                  std::size_t rows, int neighbours, int ranks);

}  // namespace lockstep
