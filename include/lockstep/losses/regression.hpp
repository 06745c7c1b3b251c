// Regression losses of keras.losses. In the formulas p is the model's output and y the target.
#pragma once

#include <lockstep/losses/reduction.hpp>

namespace lockstep {

/// The mean over a target's elements of (y - p)^2.
struct MeanSquaredError {
  Reduction reduction = Reduction::sum_over_batch_size;
};

/// The mean of |y - p|.
struct MeanAbsoluteError {
  Reduction reduction = Reduction::sum_over_batch_size;
};

/// 100 times the mean of |y - p| / max(|y|, 1e-7).
struct MeanAbsolutePercentageError {
  Reduction reduction = Reduction::sum_over_batch_size;
};

/// The mean of (log(1 + y) - log(1 + p))^2, where y and p are at least 1e-7.
struct MeanSquaredLogarithmicError {
  Reduction reduction = Reduction::sum_over_batch_size;
};

/// The mean of e^2 / 2 where |e| is at most delta, else delta |e| - delta^2 / 2, where e = p - y.
struct Huber {
  double delta = 1;
  Reduction reduction = Reduction::sum_over_batch_size;
};

/// The mean of log(cosh(p - y)).
struct LogCosh {
  Reduction reduction = Reduction::sum_over_batch_size;
};

/// Minus the cosine of the angle between y and p.
struct CosineSimilarity {
  Reduction reduction = Reduction::sum_over_batch_size;
};

}  // namespace lockstep
