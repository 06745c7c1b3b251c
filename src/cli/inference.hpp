// `lockstep evaluate` and `lockstep predict`: a trained model's metrics and outputs on the test set.
#pragma once

#include <span>
#include <string>

namespace lockstep {

/// `args` are those after the command. Throws Error, which ends all workers.
void evaluate(std::span<const std::string> args);
void predict(std::span<const std::string> args);

}  // namespace lockstep
