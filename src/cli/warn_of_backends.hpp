// Warnings about what Keras' backends compute differently: which of them Lockstep follows.
#pragma once

#include <lockstep/data/dataset.hpp>
#include <lockstep/layers/architecture.hpp>
#include <lockstep/optimizers/optimizers.hpp>
#include <lockstep/training/compile_options.hpp>

namespace lockstep {

/// Warns of crossentropies, losses and metrics, of the outputs of a softmax or sigmoid. `clips_probabilities`: the
/// losses are computed as on JAX and PyTorch.
void warn_of_crossentropies(const CompileOptions& options, const Architecture& model, bool clips_probabilities);

/// Warns of targets of a categorical crossentropy that do not sum to 1, which TensorFlow takes for 1.
void warn_of_target_sums(const CompileOptions& options, const Architecture& model, const Dataset& data,
                         bool clips_probabilities);

/// Warns of an Embedding that an optimizer trains otherwise on TensorFlow.
void warn_of_repeated_rows(const Optimizer& optimizer, const Architecture& model);

}  // namespace lockstep
