// Categorical crossentropies of keras.losses. In the formulas z is the model's output and y the target.
#pragma once

#include <lockstep/losses/reduction.hpp>

namespace lockstep {

/// Targets are class indices. From logits: logsumexp(z) - z[y]; from probabilities: -log(z[y] / sum(z)), z clipped to
/// [1e-7, 1 - 1e-7] before, as Keras on TensorFlow does.
struct SparseCategoricalCrossentropy {
  bool from_logits = false;  ///< otherwise outputs are probabilities; after a softmax the loss reads its logits anyway
  Reduction reduction = Reduction::sum_over_batch_size;
  /// As Keras on JAX and PyTorch: probabilities are clipped to [1e-7, 1 - 1e-7], and a softmax's logits are not read.
  bool clips_probabilities = false;
};

/// Targets are distributions over the classes, for example one-hot. The loss is the sum of y[k] times the sparse loss
/// of class k, but probabilities are clipped after the division, as Keras on TensorFlow does.
struct CategoricalCrossentropy {
  bool from_logits = false;  ///< otherwise outputs are probabilities; after a softmax the loss reads its logits anyway
  double label_smoothing = 0;  ///< the fraction of each target that is spread over all classes
  Reduction reduction = Reduction::sum_over_batch_size;
  bool clips_probabilities = false;  ///< see SparseCategoricalCrossentropy
};

/// The sum of -alpha (1 - p[k])^gamma y[k] log(p[k]), where p is z divided by its sum, or softmax(z) from logits.
struct CategoricalFocalCrossentropy {
  double alpha = 0.25;
  double gamma = 2;
  bool from_logits = false;
  double label_smoothing = 0;  ///< the fraction of each target that is spread over all classes
  Reduction reduction = Reduction::sum_over_batch_size;
};

}  // namespace lockstep
