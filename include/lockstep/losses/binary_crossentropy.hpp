// Binary crossentropies of keras.losses: each output is a probability. In the formulas p is the output, or
// its sigmoid from logits, and y the target.
#pragma once

#include <lockstep/losses/reduction.hpp>

namespace lockstep {

/// The mean over the outputs of -(y log(p) + (1 - y) log(1 - p)).
struct BinaryCrossentropy {
  bool from_logits = false;  ///< otherwise outputs are probabilities; after a sigmoid the loss reads its logits anyway
  double label_smoothing = 0;  ///< moves targets by this fraction toward 0.5
  Reduction reduction = Reduction::sum_over_batch_size;
  bool clips_probabilities = false;  ///< see SparseCategoricalCrossentropy
};

/// The mean over the outputs of the binary crossentropy times (1 - q)^gamma, where q is p if y is 1 and 1 - p if y is
/// 0.
struct BinaryFocalCrossentropy {
  bool apply_class_balancing = false;  ///< multiplies by alpha where y is 1, and by 1 - alpha where y is 0
  double alpha = 0.25;
  double gamma = 2;
  bool from_logits = false;
  double label_smoothing = 0;  ///< moves targets by this fraction toward 0.5
  Reduction reduction = Reduction::sum_over_batch_size;
};

}  // namespace lockstep
