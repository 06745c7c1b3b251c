// Maximum-margin losses of keras.losses. In the formulas p is the model's output and y the target.
#pragma once

#include <lockstep/losses/reduction.hpp>

namespace lockstep {

/// The mean of max(1 - y p, 0), for targets of -1 and 1, or 0 and 1, where 0 stands for -1.
struct Hinge {
  Reduction reduction = Reduction::sum_over_batch_size;
};

/// The mean of max(1 - y p, 0)^2, for the same targets.
struct SquaredHinge {
  Reduction reduction = Reduction::sum_over_batch_size;
};

/// max(1 + max((1 - y) p) - sum(y p), 0), for one-hot targets.
struct CategoricalHinge {
  Reduction reduction = Reduction::sum_over_batch_size;
};

}  // namespace lockstep
