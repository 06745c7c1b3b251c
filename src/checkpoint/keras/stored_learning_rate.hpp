// The variable in which Keras' files store a constant learning rate, beside the optimizer's config.
#pragma once

#include "checkpoint/hdf5/hdf5_reader.hpp"
#include "checkpoint/model_data.hpp"
#include "optimizers/optimizer_registry.hpp"

#include <fmt/format.h>
#include <cmath>

namespace lockstep {

/// Gives the optimizer the stored rate, as Keras does. The config has it as a double and the variable as a float, so
/// the config's stays unless it rounds to another float. Returns false, with a refusal, if the rate is NaN or infinite.
inline bool take_learning_rate(CompileState& training, float rate, const Hdf5Reader& reader) {
  if (!std::isfinite(rate)) {
    training.refusals.optimizer = reader.describe(fmt::format(
        "has the learning rate {}; compile the model again, or choose an optimizer with --optimizer", rate));
    return false;
  }
  const LearningRate known = learning_rate_of(training.optimizer);
  if (known.is_constant() && rate != static_cast<float>(known.at(0))) set_learning_rate(training.optimizer, rate);
  return true;
}

}  // namespace lockstep
