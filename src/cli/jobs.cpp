// See jobs.hpp.
#include "cli/jobs.hpp"

#include "cli/train.hpp"
#include "cli/use_model.hpp"

#include <array>

namespace lockstep {

std::span<const Job> jobs() {
  static const std::array<Job, 3> all{{{"train", "Train a model of Keras, on every worker of mpirun", train},
                                       {"evaluate", "Tell a model's loss and metrics on the test set", evaluate},
                                       {"predict", "Write a model's outputs for the test set", predict}}};
  return all;
}

}  // namespace lockstep
