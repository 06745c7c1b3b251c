// keras.losses.SparseCategoricalCrossentropy and CategoricalCrossentropy. In the formulas z is the model's output and y
// the target.
#pragma once

namespace lockstep {

/// Targets are class indices. From logits: logsumexp(z) - z[y]; from probabilities: -log(z[y]).
struct SparseCategoricalCrossentropy {
  bool from_logits = false;  ///< otherwise outputs are probabilities; behind a softmax the loss reads its logits anyway
};

/// Targets are distributions over the classes, for example one-hot. The loss is the sum of y[k] times the sparse loss
/// of class k.
struct CategoricalCrossentropy {
  bool from_logits = false;  ///< otherwise outputs are probabilities; behind a softmax the loss reads its logits anyway
};

}  // namespace lockstep
