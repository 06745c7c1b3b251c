// `lockstep worker`: trains, evaluates or predicts for lockstep.fit, evaluate and predict of the Python package, which
// start it on every worker.
#pragma once

#include <span>
#include <string>

namespace lockstep {

/// `args` are those after the command. Throws Error, which ends all workers.
void work_for_caller(std::span<const std::string> args);

}  // namespace lockstep
