// Reads the optimizer of a training_config.
#pragma once

#include "checkpoint/keras/keras_config.hpp"

#include <lockstep/optimizers/optimizers.hpp>

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

/// `value`: the optimizer's name or configuration. Throws DataError, which begins with `source`, for one that Lockstep
/// does not know or that computes otherwise than Keras 3's.
[[nodiscard]] Optimizer read_optimizer(const nlohmann::json& value, const std::string& source, KerasVersion version);

}  // namespace lockstep
