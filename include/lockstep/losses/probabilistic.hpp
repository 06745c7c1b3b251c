// Losses of keras.losses for distributions and counts. In the formulas p is the model's output and y the target.
#pragma once

#include <lockstep/losses/reduction.hpp>

namespace lockstep {

/// The sum of y log(y / p), where y and p are clipped to [1e-7, 1].
struct KLDivergence {
  Reduction reduction = Reduction::sum_over_batch_size;
};

/// The mean of p - y log(p + 1e-7).
struct Poisson {
  Reduction reduction = Reduction::sum_over_batch_size;
};

}  // namespace lockstep
