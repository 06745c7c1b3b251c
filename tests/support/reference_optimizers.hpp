// The optimizers of the reference, by Keras' formulas in double precision.
#pragma once

#include <lockstep/optimizers/optimizers.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::reference {

/// A weight's optimizer state before the first step, slot by slot in Keras' order.
[[nodiscard]] std::vector<double> initial_slots(const Optimizer& optimizer);

/// The gradient by which step `iteration` (from 1) changes a weight: with gradient accumulation the mean of the last
/// gradients, if the step changes weights at all.
[[nodiscard]] double mean_gradient(const Optimizer& optimizer, double g, std::span<double* const> slots);
[[nodiscard]] bool changes_weights(const Optimizer& optimizer, std::uint64_t iteration);

/// One step of one weight. `g`: this step's gradient; `clipped`: the mean gradient after clipping.
void update(const Optimizer& optimizer, double& w, double g, double clipped, std::span<double* const> slots,
            std::uint64_t iteration);

}  // namespace lockstep::reference
