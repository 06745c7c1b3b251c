// `lockstep evaluate` and `lockstep predict`: what a trained model is worth on the test set, and what it says of it.
#pragma once

#include <span>
#include <string>

namespace lockstep {

/// `args` are those after the command. What goes wrong is thrown, to end all workers.
void evaluate(std::span<const std::string> args);
void predict(std::span<const std::string> args);

}  // namespace lockstep
